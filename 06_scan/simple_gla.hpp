#pragma once
/// @file
/// The operator `simple_gla` of chapter 04 by scans: one declaration per stage. Plain views and sizes only: .cu files
/// include it.
///
///     S_t = exp(g_t) S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// A step is the map S -> exp(g_t) S + k_t^T v_t: chapter 06's maps, whose value is a matrix. Inputs, sizes and the
/// stages that these are compared with are chapter 04's, and so are their errors (04_fused_chunk/simple_gla.hpp).
/// Sources: Katsch, "GateLoop", arXiv 2311.01927; Merrill and Garland, NVR-2016-002, section 4, for the look-back.

#include <cstdint>
#include <string>

#include "04_fused_chunk/simple_gla.hpp"

namespace tutorial::scan {

void scan_states(const simple_gla::FloatArguments&);  ///< GPU: every product and every state in memory
void scan_tiles(const simple_gla::FloatArguments&);   ///< GPU: a scan over tiles of 64 steps; their states in memory
void scan_fused(const simple_gla::FloatArguments&);   ///< GPU: one kernel, whose tiles look back

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string scan_states_unsupported(const simple_gla::FloatArguments&);
std::string scan_tiles_unsupported(const simple_gla::FloatArguments&);
std::string scan_fused_unsupported(const simple_gla::FloatArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t scan_states_memory(const simple_gla::FloatArguments&);
std::int64_t scan_tiles_memory(const simple_gla::FloatArguments&);
std::int64_t scan_fused_memory(const simple_gla::FloatArguments&);

// Bytes that a stage's kernels read from global memory or write to it, even if a cache serves them.
std::int64_t scan_states_bytes_moved(const simple_gla::FloatArguments&);
std::int64_t scan_tiles_bytes_moved(const simple_gla::FloatArguments&);
std::int64_t scan_fused_bytes_moved(const simple_gla::FloatArguments&);  ///< without the states that look-back reads

}  // namespace tutorial::scan
