#pragma once
/// @file
/// A chunk's rows from device memory to a tile in shared memory, 16 bytes per thread, through registers. Rows are aligned
/// to 16 bytes. If one is not, the emulator ends the launch with a report.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/memory.cuh"
#include "common/tile/chunk_threads.cuh"

namespace tutorial::tile {

/// Loads the first `rows` rows and `columns` columns of a chunk; the rest of the tile becomes zeros. All threads of the
/// block call it; a barrier must follow.
/// @param tile [C, kColumns] in shared memory, whose unit() is the place of 8 elements
/// @param first_row the chunk's first row in device memory, aligned to 16 bytes, as is every stride_l-th element
/// after it
/// @param stride_l elements from one row to the next
/// @param columns a multiple of 8
template <template <int> class Tile, int kColumns>
requires requires {
  Tile<kColumns>::unit(0, 0);
}
__device__ __forceinline__ void load_tile(const Tile<kColumns>& tile, const __nv_bfloat16* first_row,
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

}  // namespace tutorial::tile
