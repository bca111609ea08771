#pragma once
/// @file
/// Starts the copy of a chunk's rows from global memory to a tile, without waiting for it: cp.async, 16 bytes a thread.
/// The emulator ends the launch with a report where a row is not aligned to 16 bytes.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/swizzled_tile.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/opaque.cuh"

namespace tutorial::linear_attention {

/// Issues copies of the first `rows` rows and `columns` columns of a chunk; the rest of the tile's first kWidth columns
/// becomes zeros. The caller commits and waits.
/// @tparam kThreadCount how many threads call it
/// @tparam kWidth columns of the tile that are filled
/// @param thread the number of this one among them
/// @param tile [C, kColumns] in shared memory
/// @param first_row the chunk's first row in global memory, aligned to 16 bytes, as is every stride_l-th element
/// after it
/// @param stride_l elements from one row to the next
/// @param columns a multiple of 8
template <int kThreadCount, int kWidth, int kColumns>
__device__ __forceinline__ void load_columns_async(int thread, const SwizzledTile<kColumns>& tile,
                                                   const __nv_bfloat16* first_row, std::int64_t stride_l, int rows,
                                                   int columns) {
  constexpr int kUnits = kWidth / 8;  // of a row, one a thread
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

/// The same for all threads of the block and all columns of the tile.
template <int kColumns>
__device__ __forceinline__ void load_tile_async(const SwizzledTile<kColumns>& tile, const __nv_bfloat16* first_row,
                                                std::int64_t stride_l, int rows, int columns) {
  load_columns_async<kThreads, kColumns>(opaque(int(threadIdx.x)), tile, first_row, stride_l, rows, columns);
}

}  // namespace tutorial::linear_attention
