#pragma once
/// @file
/// How the tensor-core stages spread a head over the GPU: as chapter 02's, and with its estimates.

#include "02_chunkwise/spread.hpp"
#include "03_gla/gla.hpp"

namespace tutorial::gla {

using linear_attention::Spread;

/// The same problem without gates: what chapter 02 is asked about widths, rows and spreads.
linear_attention::HalfArguments without_gates(const HalfArguments&);

/// Stage 8 with a spread, whose `starts` it computes. Errors and limits as stage 8.
void subchunk_walk(const HalfArguments&, Spread);
/// Bytes of its workspace.
std::int64_t subchunk_walk_memory(const HalfArguments&, const Spread&);
/// Bytes that its kernels ask global memory for or give to it, be it a cache that serves them.
std::int64_t subchunk_walk_moved(const HalfArguments&, const Spread&);

}  // namespace tutorial::gla
