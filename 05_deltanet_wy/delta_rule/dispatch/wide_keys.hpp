#pragma once
/// @file
/// The operators in fp32 on a GPU for keys of more than 256 columns (wide_keys.cu). One walk serves `delta_rule` and the
/// two operators with gates, whose arguments are those of `delta_rule` and gates.

#include <string>

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/view.hpp"

namespace tutorial::delta_rule {

inline constexpr int kWidestInRegisters = 256;  ///< Dk of the other kernels in fp32
inline constexpr int kWidestKey = 1024;

/// Starts the walk on current_stream(). It takes q, k and v with any strides. Requires: an empty wide_keys_unsupported().
/// @param gates of each position: 1, or Dk if each row of the state has its own; 0: all gates are 1
/// @param g their logarithms [B, H, L, gates]
/// @throws CudaError if the launch is refused
void wide_keys(const Bf16Arguments&, int gates = 0, const View<const float>& g = {});
/// Why it does not support these sizes, as a sentence; empty if it does.
std::string wide_keys_unsupported(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
