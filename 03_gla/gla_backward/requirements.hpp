#pragma once
/// @file
/// What the stages of the gradients require, and the memory that they take.

#include <cstdint>
#include <string>

#include "03_gla/gla_backward.hpp"

namespace tutorial::gla {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string one_anchor_backward_unsupported(const Bf16BackwardArguments&);  ///< and of anchored_pairs
std::string materialized_backward_unsupported(const Bf16BackwardArguments&);
std::string subchunk_walks_backward_unsupported(const Bf16BackwardArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t recurrent_backward_memory(const FloatBackwardArguments&);
std::int64_t closed_form_backward_memory(const FloatBackwardArguments&);
std::int64_t chunkwise_backward_memory(const FloatBackwardArguments&);
std::int64_t between_memory(const Bf16BackwardArguments&);  ///< of anchored_pairs, one_anchor and materialized
std::int64_t subchunk_walks_backward_memory(const Bf16BackwardArguments&);

}  // namespace tutorial::gla
