#pragma once
/// @file
/// How the stages 7 and 8 spread a head over the GPU. What asks the GPU for its multiprocessors or its shared memory
/// throws CudaError where there is none.

#include <cstdint>

#include "02_chunkwise/linear_attention.hpp"

namespace tutorial::linear_attention {

/// A head's columns of Dv in tiles, its positions in segments; a block takes one tile of one segment.
struct Spread {
  int columns = 64;               ///< of a tile: 64, or 128 where Dk <= 128
  int segments = 1;               ///< pieces of the sequence that are walked at once
  int length = 0;                 ///< positions of a piece: whole chunks of 64; the last piece may be shorter
  const float* starts = nullptr;  ///< [B, H, segments - 1, Dk, Dv]: the states that all pieces but the first start from
};

/// The widest tile of this problem: 128 if Dv has so many columns, the state fits into registers and the tiles into
/// this GPU's shared memory; else 64.
int widest_tile(const HalfArguments&);
/// A sequence of L in at most so many segments, 1 or more, of equal length; `starts` is null.
Spread make_spread(int L, int columns, int segments);
/// The tile of a block that walks a head alone, 64 or 128 columns: narrow while multiprocessors are idle.
int block_columns(const HalfArguments&);
/// What stage 8 does by itself: a block for each multiprocessor.
Spread one_wave(const HalfArguments&);
/// Bytes of the segments' states.
std::int64_t spread_memory(const HalfArguments&, const Spread&);

/// Microseconds that a block takes for a chunk, where Dk = 128: alone on its multiprocessor, and with another one.
struct ChunkTime {
  double alone, shared;
};
/// Of a walk, and of the kernel in front of it that reads the segments for their states.
struct TileTimes {
  ChunkTime walk, states;
};
/// With tiles of 64 columns and of 128.
struct WalkTimes {
  TileTimes narrow, wide;
};
/// Of a spread, in microseconds.
double estimated_time(const HalfArguments&, const WalkTimes&, const Spread&);
/// The spread of the least estimated time.
Spread fastest_spread(const HalfArguments&, const WalkTimes&);

struct Normalizer;

/// Stage 7 with a spread, whose `starts` are there if it has more than one segment. Limits and errors as stage 7.
/// @param normalizer null: o is not normalised
void pipelined(const HalfArguments&, const Spread&, const Normalizer* normalizer = nullptr);
/// Stage 8 with a spread, whose `starts` it computes, as with a normaliser those of z.
void sequence_parallel(const HalfArguments&, Spread, const Normalizer* normalizer = nullptr);

}  // namespace tutorial::linear_attention
