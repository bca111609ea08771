#pragma once
/// @file
/// A chunk's rows from global memory to a tile in shared memory, 16 bytes per thread: load_tile() through registers,
/// load_tile_async() by cp.async, which runs while the thread computes. Rows are aligned to 16 bytes. If one is not,
/// the emulator ends the launch with a report.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/memory.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::tile {

/// Loads the first `rows` rows and `columns` columns of a chunk; the rest of the tile becomes zeros. All threads of the
/// block call it; a barrier must follow.
/// @param tile [C, kColumns] in shared memory
/// @param first_row the chunk's first row in global memory, aligned to 16 bytes, as is every stride_l-th element
/// after it
/// @param stride_l elements from one row to the next
/// @param columns a multiple of 8
template <int kColumns>
__device__ __forceinline__ void load_tile(const SwizzledTile<kColumns>& tile, const __nv_bfloat16* first_row,
                                          std::int64_t stride_l, int rows, int columns) {
  constexpr int kUnits = kColumns / 8;  // of a row, 16 bytes each
#pragma unroll 4
  for (int i = int(threadIdx.x); i < kChunk * kUnits; i += kThreads) {
    const int row = i / kUnits, column = i % kUnits * 8;
    uint4 unit{};
    if (row < rows && column < columns) {
      unit = load_global(reinterpret_cast<const uint4*>(first_row + row * stride_l + column));
    }
    *reinterpret_cast<uint4*>(tile.data + tile.unit(row, column)) = unit;
  }
}

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
