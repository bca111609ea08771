#pragma once
/// @file
/// What the stages of the gradients require, and the memory that they take.

#include <cstdint>
#include <string>

#include "02_chunkwise/linear_attention_backward.hpp"

namespace tutorial::linear_attention {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string gradients_unsupported(const Bf16BackwardArguments&);  ///< `walks`, `materialized`

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t chunkwise_backward_memory(const FloatBackwardArguments&);
std::int64_t materialized_backward_memory(const Bf16BackwardArguments&);

}  // namespace tutorial::linear_attention
