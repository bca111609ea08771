#pragma once
/// @file
/// The adjoint as two calls of the operator: dx is a scan of dy from the end, with each step's gate taken from the step
/// after it. A view whose stride over time is negative reads a sequence from its end, so the same kernels compute it.

#include "06_scan/scan.hpp"

namespace tutorial::scan {

/// The call that computes y again from the inputs, into `y` [B, H, L, D].
inline Arguments forwards(const BackwardArguments& a, View<float> y) {
  return {a.B, a.H, a.L, a.D, a.Dg, a.x, a.log_decay, a.initial_state, y, /*final_state=*/{}, /*final_log_decay=*/{}};
}

/// dx_t = exp(g_{t+1}) dx_{t+1} + dy_t for t = L, ..., 1. Its first step, t = L, would have the gate g_{L+1}.
inline Arguments backwards(const BackwardArguments& a) {
  const auto from_end = [](auto view, std::int64_t last) {
    view.data += last * view.stride_l;
    view.stride_l = -view.stride_l;
    return view;
  };
  return {a.B,
          a.H,
          a.L,
          a.D,
          a.Dg,
          from_end(a.dy, a.L - 1),
          from_end(a.log_decay, a.L),
          /*initial_state=*/{},
          from_end(a.dx, a.L - 1),
          /*final_state=*/{},
          /*final_log_decay=*/{},
          /*has_first_gate=*/false};
}

/// Memory for y of the forward pass, which the gates' gradient needs, in the workspace: [B, H, L, D], not yet computed.
/// @throws CudaError if it cannot be allocated
View<float> recomputed_y(const BackwardArguments&);
/// Its bytes.
std::int64_t recomputed_y_memory(const BackwardArguments&);

/// Starts the kernel for dg_t = exp(g_t) dx_t y_{t-1}, summed over the channels if Dg = 1, and dinitial_state =
/// exp(g_1) dx_1; a.dx must be there. A thread has four gates of a head, 256 apart, or where there is a sum a warp has
/// one. No sum over steps: all positions at once. Needs: no gate_gradient_unsupported().
/// @param y [B, H, L, D], of the forward pass
/// @throws CudaError if the launch is refused
void gate_gradient(const BackwardArguments& a, View<const float> y);
/// Why gate_gradient() cannot run the problem, as a sentence; empty if it can.
std::string gate_gradient_unsupported(const BackwardArguments&);

}  // namespace tutorial::scan
