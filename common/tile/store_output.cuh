#pragma once
/// @file
/// Writes a chunk's outputs from the registers of a block (chunk_threads.cuh) to device memory, as rows of whole 16-byte
/// units. They pass through shared memory, because the accumulators of mma come in pieces of 8 bytes.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_threads.cuh"

namespace tutorial::tile {

/// Writes the warp's columns of a tile to device memory in whole units of 16 bytes. The same warp has put them into the
/// tile.
/// @param o the tile's first row, the block's first column; rows are stride_l elements apart
/// @param stride_l a multiple of 8, and o aligned to 16 bytes
/// @param rows,columns the rows of the chunk and the columns of the block that exist; columns is a multiple of 8
/// @param warp the warp's number among those that share the columns
template <class Shape>
__device__ __forceinline__ void store_warp_columns(__nv_bfloat16* o, std::int64_t stride_l, int rows, int columns,
                                                   const typename Shape::ValueTile& V, int warp = warp_index()) {
  const int lane = fresh_lane(), first_column = warp * Shape::kWarpColumns;
  __syncwarp();
  constexpr int kUnits = Shape::kWarpColumns / 8;  // of a row
  constexpr int kStep = 32 / kUnits;               // rows at a time; 8 lanes take 8 rows, which lie in different places
  const int first = lane / 8 / kUnits * 8 + lane % 8, column = first_column + lane / 8 % kUnits * 8;
  const int mine = V.unit(first, column);
  uint4 units[kChunk / kStep];
#pragma unroll
  for (int i = 0; i < kChunk / kStep; ++i)
    units[i] = *reinterpret_cast<const uint4*>(V.data + V.advance(mine, i * kStep, 0));
  o += first * stride_l + column;
  if (column >= columns) rows = 0;
#pragma unroll
  for (int i = 0; i < kChunk / kStep; ++i) {
    if (first + i * kStep < rows) store_global(reinterpret_cast<uint4*>(o), units[i]);
    o += kStep * stride_l;
  }
}

/// Writes O, each row times a factor, to device memory. It is assembled in the warp's columns of V, which are
/// overwritten. No other warp reads them, and O has their shape. See store_warp_columns().
/// @param factor factor(i) is that of row 8 i + lane / 4
template <class Shape, class Factor>
requires std::is_invocable_v<Factor, int> __device__ __forceinline__ void store_output(
    __nv_bfloat16* o, std::int64_t stride_l, int rows, int columns, const typename Shape::Output& O,
    const typename Shape::ValueTile& V, Factor factor) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  __syncwarp();
  const int corner = V.unit(lane / 4, first_column);
#pragma unroll
  for (int t = 0; t < kChunk / 8; ++t) {
    const float times = factor(t);
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      const float* two = &O[t / 2][j][t % 2 * 2];
      *reinterpret_cast<std::uint32_t*>(V.data + V.advance(corner, t * 8, j * 8) + lane % 4 * 2) =
          pack(times * two[0], times * two[1]);
    }
  }
  store_warp_columns<Shape>(o, stride_l, rows, columns, V);
}

/// The same with one factor for all rows.
template <class Shape>
__device__ __forceinline__ void store_output(__nv_bfloat16* o, std::int64_t stride_l, int rows, int columns,
                                             const typename Shape::Output& O, const typename Shape::ValueTile& V,
                                             float factor) {
  store_output<Shape>(o, stride_l, rows, columns, O, V, [=](int) { return factor; });
}

}  // namespace tutorial::tile
