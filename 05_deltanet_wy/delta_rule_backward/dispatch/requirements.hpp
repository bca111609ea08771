#pragma once
/// @file
/// What the stages of the gradients require, the memory that they take and the bytes that they move.

#include <cstdint>
#include <string>

#include "05_deltanet_wy/delta_rule_backward.hpp"

namespace tutorial::delta_rule {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string walks_backward_unsupported(const Bf16BackwardArguments&);
std::string tensor_core_backward_unsupported(const Bf16BackwardArguments&);
std::string both_ends_backward_unsupported(const Bf16BackwardArguments&);
std::string warpgroups_backward_unsupported(const Bf16BackwardArguments&);  ///< also `longer_chunks` and `segments`

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t chunkwise_backward_memory(const FloatBackwardArguments&);
std::int64_t tensor_core_backward_memory(const Bf16BackwardArguments&);  ///< also `walks`
std::int64_t both_ends_backward_memory(const Bf16BackwardArguments&);
std::int64_t warpgroups_backward_memory(const Bf16BackwardArguments&);
std::int64_t longer_chunks_backward_memory(const Bf16BackwardArguments&);
std::int64_t segments_backward_memory(const Bf16BackwardArguments&);

// Bytes that a stage's kernels read from device memory or write to it, even if a cache serves them.
std::int64_t walks_backward_bytes_moved(const Bf16BackwardArguments&);
std::int64_t tensor_core_backward_bytes_moved(const Bf16BackwardArguments&);
std::int64_t both_ends_backward_bytes_moved(const Bf16BackwardArguments&);
std::int64_t warpgroups_backward_bytes_moved(const Bf16BackwardArguments&);
std::int64_t longer_chunks_backward_bytes_moved(const Bf16BackwardArguments&);

}  // namespace tutorial::delta_rule
