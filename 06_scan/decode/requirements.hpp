#pragma once
/// @file
/// Whether a stage of `decode` can run, the memory that it takes, the bytes that it moves, and what it says of itself in
/// the report. All throw CudaError if they query the device and the runtime refuses.

#include <cstdint>
#include <string>

#include "06_scan/decode.hpp"

namespace tutorial::decode {

// Why a stage cannot run the problem, as a sentence; empty if it can.
template <Rule kRule>
std::string prefill_unsupported(const Bf16Arguments&);
template <Rule kRule>
std::string step_unsupported(const Bf16Arguments&);
template <Rule kRule>
std::string step_in_registers_unsupported(const Bf16Arguments&);  ///< and replay
template <Rule kRule>
std::string dispatch_unsupported(const Bf16Arguments&);
/// Of the prompt alone; empty if there is none.
template <Rule kRule>
std::string prompt_unsupported(const Bf16Arguments&);

// What a stage picks, as text for the report.
template <Rule kRule>
std::string prefill_note(const Bf16Arguments&);
template <Rule kRule>
std::string step_note(const Bf16Arguments&);  ///< and of step_in_registers
template <Rule kRule>
std::string dispatch_note(const Bf16Arguments&);

// Bytes that a stage needs beside its inputs and outputs.
template <Rule kRule>
std::int64_t prefill_memory(const Bf16Arguments&);
template <Rule kRule>
std::int64_t step_memory(const Bf16Arguments&);  ///< of all other stages with a prompt and tokens
template <Rule kRule>
std::int64_t replay_memory(const Bf16Arguments&);

// Bytes that a stage's kernels read from device memory or write to it; -1 if the dispatch of the prompt does not say.
template <Rule kRule>
std::int64_t prefill_bytes_moved(const Bf16Arguments&);
template <Rule kRule>
std::int64_t step_bytes_moved(const Bf16Arguments&);
template <Rule kRule>
std::int64_t dispatch_bytes_moved(const Bf16Arguments&);
/// Of prompt and tokens.
/// @param columns of the state per block of 128 threads
/// @param threads of a block that read a token's gate, or beta
/// @param state_reads how often a token reads the state
template <Rule kRule>
std::int64_t prompt_then_tokens_bytes_moved(const Bf16Arguments&, int columns, int threads, int state_reads);

/// Bytes of one token for all B H `heads`: its states read and written in fp32, its q, k, v and o in bf16, its gates
/// and beta in fp32, each of them once.
std::int64_t token_bytes(Rule rule, std::int64_t heads, std::int64_t Dk, std::int64_t Dv);

}  // namespace tutorial::decode
