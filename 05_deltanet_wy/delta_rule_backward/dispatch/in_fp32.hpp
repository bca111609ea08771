#pragma once
/// @file
/// The gradients in fp32 on a GPU, for problems that the kernels on tensor cores do not support (in_fp32.cu). One walk
/// serves `delta_rule` and the two operators with gates, whose arguments are those of `delta_rule` and gates.

#include <cstdint>
#include <string>

#include "05_deltanet_wy/delta_rule_backward.hpp"

namespace tutorial::delta_rule {

/// The gates of an operator, and where their gradients go. Without a value all gates are 1.
struct Gates {
  int count = 0;        ///< of each position: 1, or Dk if each row of the state has its own; 0: all gates are 1
  View<const float> g;  ///< their logarithms [B, H, L, count]
  View<float> dg;       ///< [B, H, L, count]
};

/// Computes the gradients by kernels on current_stream(). They take q, k, v and do with any strides. Requires: an empty
/// backward_in_fp32_unsupported().
/// @throws CudaError if the memory cannot be allocated or a launch is refused
void backward_in_fp32(const Bf16BackwardArguments&, const Gates& = {});
/// Why they do not support these sizes, as a sentence; empty if they do.
std::string backward_in_fp32_unsupported(const Bf16BackwardArguments&);
/// Bytes of the workspace.
std::int64_t backward_in_fp32_memory(const Bf16BackwardArguments&);

}  // namespace tutorial::delta_rule
