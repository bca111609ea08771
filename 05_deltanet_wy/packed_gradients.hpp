#pragma once
/// @file
/// The kernels behind dispatch for the gradients of packed sequences: those of `tensor_core`, with a block for each chunk
/// of each sequence where chunks are computed by themselves, and one for each sequence in a walk, the longest first.

#include <cstdint>

#include "05_deltanet_wy/packed_backward.hpp"

namespace tutorial::gated_delta_rule {

/// Starts them. Requires: an empty tensor_core_backward_unsupported().
/// @throws CudaError if memory runs out or a launch is refused
void packed_tensor_core_backward(const PackedBf16BackwardArguments&);
/// Bytes of what they leave for each other.
std::int64_t packed_tensor_core_backward_memory(const PackedBf16BackwardArguments&);

}  // namespace tutorial::gated_delta_rule

namespace tutorial::kda {

/// As in gated_delta_rule.
void packed_tensor_core_backward(const PackedBf16BackwardArguments&);
/// Likewise.
std::int64_t packed_tensor_core_backward_memory(const PackedBf16BackwardArguments&);

}  // namespace tutorial::kda
