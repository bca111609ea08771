#pragma once
/// @file
/// The stages of the operator `gla` in chapter 04, one declaration each. The operator is chapter 03's, and so are its
/// arguments (03_gla/gla.hpp). Plain views and sizes only: .cu files include it.
///
/// Inputs and outputs of the stages are bf16; gates and states are fp32. GPU stages only start their kernels, on
/// current_stream(); they throw CudaError if the runtime refuses. So do ..._unsupported, notes and memory if they query
/// the device. All sizes are 1 or more. A stage does not check whether it supports a problem: if its ..._unsupported is
/// not empty, its behaviour is undefined.
/// Source of what this chapter rebuilds and fuses: the first release of flash-linear-attention, `fused_chunk_gla`;
/// Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", arXiv 2312.06635, section 4.

#include <cstdint>
#include <string>

#include "03_gla/gla.hpp"

namespace tutorial::fused_gla {

using gla::Bf16Arguments;

void five_steps(const Bf16Arguments&);    ///< GPU: five kernels, all in memory between them
void intra_fused(const Bf16Arguments&);   ///< GPU: two kernels, of which one walks, computes the scores and writes o
void one_kernel(const Bf16Arguments&);    ///< GPU: all in one kernel, in chunks of 64
void specialized(const Bf16Arguments&);   ///< GPU, Hopper: the same, with the walk on products of warpgroups
void score_levels(const Bf16Arguments&);  ///< GPU, Hopper: the same, with all scores on tensor cores
void segments(const Bf16Arguments&);      ///< GPU, Hopper: the same on segments of the sequence
void dispatch(const Bf16Arguments&);      ///< what a user calls

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string five_steps_unsupported(const Bf16Arguments&);  ///< and of intra_fused
std::string one_kernel_unsupported(const Bf16Arguments&);
std::string specialized_unsupported(const Bf16Arguments&);
std::string score_levels_unsupported(const Bf16Arguments&);  ///< and of segments
std::string dispatch_unsupported(const Bf16Arguments&);

/// The number of segments and the width of a tile.
std::string segments_note(const Bf16Arguments&);
/// Which kernel dispatch picks.
std::string dispatch_note(const Bf16Arguments&);

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t five_steps_memory(const Bf16Arguments&);
std::int64_t intra_fused_memory(const Bf16Arguments&);
std::int64_t segments_memory(const Bf16Arguments&);
std::int64_t dispatch_memory(const Bf16Arguments&);

// Bytes that a stage's kernels read from device memory or write to it, even if a cache serves them; -1 if that is
// unknown.
std::int64_t five_steps_bytes_moved(const Bf16Arguments&);
std::int64_t intra_fused_bytes_moved(const Bf16Arguments&);
std::int64_t one_kernel_bytes_moved(const Bf16Arguments&);
std::int64_t specialized_bytes_moved(const Bf16Arguments&);
std::int64_t score_levels_bytes_moved(const Bf16Arguments&);
std::int64_t segments_bytes_moved(const Bf16Arguments&);
std::int64_t dispatch_bytes_moved(const Bf16Arguments&);

}  // namespace tutorial::fused_gla
