#pragma once
/// @file
/// The stages of the operator `gla` in chapter 04, one declaration each. The operator is chapter 03's, and so are its
/// arguments (03_gla/gla.hpp). Plain views and sizes only: .cu files include it.
///
/// Stages take and give bf16, gates and states are fp32. GPU stages only start their kernels, on current_stream(); they
/// throw CudaError where the runtime refuses. So do limits, notes and memory where they ask the device. All sizes are 1
/// or more. A stage does not check its limits: where they are not empty, calling it is undefined.
/// Source of what this chapter rebuilds and fuses: the first release of flash-linear-attention, `fused_chunk_gla`;
/// Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", arXiv 2312.06635, section 4.

#include <cstdint>
#include <string>

#include "03_gla/gla.hpp"

namespace tutorial::fused_gla {

using gla::HalfArguments;

void chapter_03(const HalfArguments&);     ///< 1: GPU: chapter 03's dispatch
void five_steps(const HalfArguments&);     ///< 2: GPU: five kernels, all in memory between them
void prepare_fused(const HalfArguments&);  ///< 3: GPU: the first two in one pass
void intra_fused(const HalfArguments&);    ///< 4: GPU: the other three in one walk
void one_kernel(const HalfArguments&);     ///< 5: GPU: all in one kernel, in chunks of 64
void dispatch(const HalfArguments&);       ///< 6: what a user calls

// What a stage cannot run, as a sentence; empty where it can.
std::string chapter_03_limits(const HalfArguments&);
std::string window_limits(const HalfArguments&);  ///< of the stages 2 to 4
std::string one_kernel_limits(const HalfArguments&);
std::string dispatch_limits(const HalfArguments&);

/// What chapter 03's dispatch picks, as text for the report.
std::string chapter_03_note(const HalfArguments&);
/// The same: it is chapter 03's.
std::string dispatch_note(const HalfArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t chapter_03_memory(const HalfArguments&);
std::int64_t five_steps_memory(const HalfArguments&);  ///< of the stages 2 and 3
std::int64_t intra_fused_memory(const HalfArguments&);
std::int64_t one_kernel_memory(const HalfArguments&);
std::int64_t dispatch_memory(const HalfArguments&);

// Bytes that a stage's kernels ask global memory for or give to it, be it a cache that serves them; -1 if it cannot
// say.
std::int64_t chapter_03_moved(const HalfArguments&);
std::int64_t five_steps_moved(const HalfArguments&);
std::int64_t prepare_fused_moved(const HalfArguments&);
std::int64_t intra_fused_moved(const HalfArguments&);
std::int64_t one_kernel_moved(const HalfArguments&);
std::int64_t dispatch_moved(const HalfArguments&);

}  // namespace tutorial::fused_gla
