#pragma once
/// @file
/// The same as load_tile_sync.cuh by cp.async, which runs while the thread computes.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::tile {

/// Issues the copies of a chunk's first `rows` rows and `columns` columns by some of the block's threads; the rest of
/// the tile's first kWidth columns becomes zeros. The caller commits and waits. Parameters as load_tile().
/// @tparam kThreadCount how many threads call it
/// @tparam kWidth columns of the tile that are filled
/// @param thread the number of this one among them
template <int kThreadCount, int kWidth, int kColumns>
__device__ __forceinline__ void load_columns_async(int thread, const SwizzledTile<kColumns>& tile,
                                                   const __nv_bfloat16* first_row, std::int64_t stride_l, int rows,
                                                   int columns) {
  constexpr int kUnits = kWidth / 8;  // of a row, one per thread
  static_assert(kThreadCount % kUnits == 0 && kChunk % (kThreadCount / kUnits) == 0);
  const int first = thread / kUnits, column = thread % kUnits * 8;
  const __nv_bfloat16* source = first_row + first * stride_l + column;
  constexpr int kStep = kThreadCount / kUnits;
  if (rows >= kChunk && columns >= kWidth) {
#pragma unroll
    for (int i = 0; i < kChunk / kStep; ++i) {
      cp_async<16>(tile.data + tile.unit(first + i * kStep, column), source);
      source += kStep * stride_l;
    }
  } else {
    for (int i = 0; i < kChunk / kStep; ++i) {
      const int row = first + i * kStep;
      cp_async<16>(tile.data + tile.unit(row, column), source, row < rows && column < columns);
      source += kStep * stride_l;
    }
  }
}

/// load_columns_async() by all threads of the block, for all columns of the tile.
template <int kColumns>
__device__ __forceinline__ void load_tile_async(const SwizzledTile<kColumns>& tile, const __nv_bfloat16* first_row,
                                                std::int64_t stride_l, int rows, int columns) {
  load_columns_async<kThreads, kColumns>(hide_from_compiler(int(threadIdx.x)), tile, first_row, stride_l, rows,
                                         columns);
}

}  // namespace tutorial::tile
