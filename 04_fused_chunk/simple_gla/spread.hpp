#pragma once
/// @file
/// How the stages 4 to 6 spread a head over the GPU: as chapter 02's, and with its estimates. Errors and limits as the
/// stages'.

#include "02_chunkwise/spread.hpp"
#include "04_fused_chunk/simple_gla.hpp"

namespace tutorial::simple_gla {

using linear_attention::Spread;

/// The same problem without gates: what chapter 02 is asked about widths, rows and spreads.
inline linear_attention::HalfArguments without_gates(const HalfArguments& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, a.C, a.scale, a.q, a.k, a.v, a.initial_state, a.o, a.final_state};
}

/// Stage 4 with a spread.
void fused(const HalfArguments&, const Spread&);
/// Bytes that its kernel asks global memory for or gives to it.
std::int64_t fused_moved(const HalfArguments&, const Spread&);
/// Stage 5 with a spread, whose `starts` it computes.
void sequence_parallel(const HalfArguments&, Spread);
/// Bytes that it needs beside its inputs and outputs.
std::int64_t sequence_parallel_memory(const HalfArguments&, const Spread&);
/// Bytes that its kernels ask global memory for or give to it.
std::int64_t sequence_parallel_moved(const HalfArguments&, const Spread&);

}  // namespace tutorial::simple_gla
