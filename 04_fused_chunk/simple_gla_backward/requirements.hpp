#pragma once
/// @file
/// What the stages of the gradients require, and the memory that they take.

#include <cstdint>
#include <string>

#include "04_fused_chunk/simple_gla_backward.hpp"

namespace tutorial::simple_gla {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string walks_backward_unsupported(const Bf16BackwardArguments&);  ///< and of segments
std::string hopper_gradients_backward_unsupported(const Bf16BackwardArguments&);
std::string pipelined_backward_unsupported(const Bf16BackwardArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t reference_backward_memory(const FloatBackwardArguments&);
std::int64_t chunkwise_backward_memory(const FloatBackwardArguments&);
std::int64_t segments_backward_memory(const Bf16BackwardArguments&);  ///< and of pipelined
std::int64_t hopper_gradients_backward_memory(const Bf16BackwardArguments&);

// What a stage chooses, as text for the report.
std::string segments_backward_note(const Bf16BackwardArguments&);  ///< and of pipelined
std::string hopper_gradients_backward_note(const Bf16BackwardArguments&);

}  // namespace tutorial::simple_gla
