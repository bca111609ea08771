#pragma once
/// @file
/// Writes a chunk's outputs to device memory as rows of whole 16-byte units: from registers (store_output.cuh), or from
/// a tile in shared memory by threads that need not have put them there.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/eviction.hpp"
#include "common/device/memory.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/store_output.cuh"

namespace tutorial::tile {

/// Writes a tile of 64 columns to device memory in whole units of 16 bytes, by some of the block's threads.
/// @tparam kThreadCount how many threads call it, a multiple of 8
/// @tparam kEviction of the rows in the second-level cache: kNormal or kFirst
/// @param thread the number of this one among them
/// @param o the tile's first row and column; rows are stride_l elements apart
/// @param stride_l a multiple of 8, and o aligned to 16 bytes
/// @param rows,columns the rows and columns of the tile that exist; columns is a multiple of 8
/// @param release called when this thread has read its part of the tile, before it writes
template <int kThreadCount, Eviction kEviction = Eviction::kNormal, class Tile, class Release>
__device__ __forceinline__ void store_tile_by(int thread, __nv_bfloat16* o, std::int64_t stride_l, int rows,
                                              int columns, const Tile& tile, Release release) {
  static_assert(kEviction != Eviction::kLast);
  constexpr int kUnits = 64 / 8;                                // of a row
  constexpr int kStep = kThreadCount / kUnits;                  // rows at a time
  constexpr int kUnitsOfThread = (kChunk + kStep - 1) / kStep;  // at most
  const int first = thread / kUnits, column = thread % kUnits * 8;
  uint4 units[kUnitsOfThread];
#pragma unroll
  for (int i = 0; i < kUnitsOfThread; ++i) {
    const int row = first + i * kStep;
    if (row < kChunk) units[i] = *reinterpret_cast<const uint4*>(tile.data + tile.unit(row, column));
  }
  release();
  o += first * stride_l + column;
  if (column >= columns) return;
  rows = min(rows, kChunk);
#pragma unroll
  for (int i = 0; i < kUnitsOfThread; ++i) {
    if (first + i * kStep < rows) store_global(reinterpret_cast<uint4*>(o), units[i], kEviction);
    o += kStep * stride_l;
  }
}

}  // namespace tutorial::tile
