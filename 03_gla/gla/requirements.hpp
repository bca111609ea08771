#pragma once
/// @file
/// What the stages of `gla` require of a problem and of the GPU, and the memory that they take.

#include <cstdint>
#include <string>

#include "03_gla/gla.hpp"

namespace tutorial::gla {

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string parallel_unstable_unsupported(const FloatArguments&);  ///< reads g, if any: these gates may be too small
std::string parallel_log_unsupported(const FloatArguments&);
std::string chunk_gpu_unsupported(const FloatArguments&);
std::string subchunk_tensor_core_unsupported(const Bf16Arguments&);
std::string warpgroup_walk_unsupported(const Bf16Arguments&);
std::string recurrent_gpu_unsupported(const FloatArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs: scores, states, sums of gates.
std::int64_t parallel_unstable_memory(const FloatArguments&);
std::int64_t parallel_log_memory(const FloatArguments&);
std::int64_t chunkwise_memory(const FloatArguments&);
std::int64_t subchunk_walk_memory(const Bf16Arguments&);  ///< and of subchunk_tensor_core, warpgroup_walk
std::int64_t walk_segments_memory(const Bf16Arguments&);

/// How small the products of gates of parallel_unstable have become, as text for the report.
std::string parallel_unstable_note(const FloatArguments&);

}  // namespace tutorial::gla
