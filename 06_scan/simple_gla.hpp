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

#include "04_fused_chunk/simple_gla.hpp"

namespace tutorial::scan {

void scan_states(const simple_gla::FloatArguments&);  ///< GPU: every product and every state in memory
void scan_fused(const simple_gla::FloatArguments&);   ///< GPU: one kernel, whose tiles look back

}  // namespace tutorial::scan
