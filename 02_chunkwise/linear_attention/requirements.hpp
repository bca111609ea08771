#pragma once
/// @file
/// What the stages of `linear_attention` require of a problem and of the GPU, and the memory that they take.

#include <cstdint>
#include <string>

#include "02_chunkwise/linear_attention.hpp"

namespace tutorial::linear_attention {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string recurrent_unsupported(const FloatArguments&);
std::string parallel_unsupported(const FloatArguments&);
std::string materialized_unsupported(const FloatArguments&);
std::string fused_unsupported(const FloatArguments&);
std::string mma_products_unsupported(const Bf16Arguments&);
std::string register_state_unsupported(const Bf16Arguments&);
std::string tensor_core_unsupported(const Bf16Arguments&);  ///< also `pipelined`, `segments`
std::string bulk_copies_unsupported(const Bf16Arguments&);
std::string warpgroup_mma_unsupported(const Bf16Arguments&);  ///< `warpgroup_mma` to `cluster`

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t recurrent_memory(const FloatArguments&);
std::int64_t parallel_memory(const FloatArguments&);
std::int64_t chunkwise_memory(const FloatArguments&);

}  // namespace tutorial::linear_attention
