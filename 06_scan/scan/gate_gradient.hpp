#pragma once
/// @file
/// The gradient of the gates, from the two scans of the adjoint.

#include <cstdint>

#include "06_scan/scan.hpp"
#include "06_scan/scan_backward.hpp"

namespace tutorial::scan {

/// Memory for y of the forward pass, which the gates' gradient needs, in the workspace: [B, H, L, D], not yet computed.
/// @throws CudaError if it cannot be allocated
View<float> recomputed_y(const BackwardArguments&);

/// Starts the kernel for dg_t = exp(g_t) dx_t y_{t-1}, summed over the channels if Dg = 1, and dinitial_state =
/// exp(g_1) dx_1; a.dx must be there. A thread has four gates of a head, 256 apart, or where there is a sum a warp has
/// one. No sum over steps: all positions at once.
/// @param y [B, H, L, D], of the forward pass
/// @throws CudaError if the launch is refused
void gate_gradient(const BackwardArguments& a, View<const float> y);

// A block of gate_gradient() has 256 threads.
inline constexpr int kGateThreads = 256, kGatesOfThread = 4;

/// Blocks of gate_gradient(): each head has blocks of its own.
inline std::int64_t gate_blocks_of_head(const BackwardArguments& a) {
  return a.Dg == a.D ? (std::int64_t(a.L) * a.D - 1) / (kGatesOfThread * kGateThreads) + 1
                     : (a.L - 1) / (kGateThreads / 32) + 1;
}

}  // namespace tutorial::scan
