#pragma once
/// @file
/// The tiles of a chunk in shared memory, beside what the warps hold in registers.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/pack.cuh"
#include "common/tile/chunk_threads.cuh"
#include "common/tile/swizzled_tile.cuh"

namespace tutorial::tile {

/// The part of a head that one block holds: all of Dk <= kDk, and kDv columns of Dv.
template <int kDk, int kDv>
struct ChunkShape : ChunkRegisters<kDk, kDv> {
  using KeyTile = SwizzledTile<kDk>;       ///< Q or K, [C, Dk]
  using ValueTile = SwizzledTile<kDv>;     ///< V or O, [C, Dv]
  using ScoreTile = SwizzledTile<kChunk>;  ///< P, [C, C]
};

/// Calls f(t, two elements of O, two of X) for all pairs of elements that the lane holds of an output and of a tile in the
/// same place; t counts the lane's rows, 8 t + lane / 4.
template <class Shape, class Output, class F>
__device__ __forceinline__ void for_each_pair(Output& O, const typename Shape::ValueTile& X, F f) {
  const int lane = fresh_lane(), corner = X.unit(lane / 4, warp_index() * Shape::kWarpColumns);
#pragma unroll
  for (int t = 0; t < kChunk / 8; ++t) {
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      const auto* place = X.data + X.advance(corner, t * 8, j * 8) + lane % 4 * 2;
      f(t, &O[t / 2][j][t % 2 * 2], unpack(*reinterpret_cast<const std::uint32_t*>(place)));
    }
  }
}

/// products += sign times those of the rows of O and X, but for one row if it is among them.
template <class Shape>
__device__ __forceinline__ void add_row_products(RowSums& products, float sign, const typename Shape::Output& O,
                                                 const typename Shape::ValueTile& X, int left_out = kChunk) {
  const int row = fresh_lane() / 4;
  for_each_pair<Shape>(O, X, [&](int t, const float* o, float2 x) {
    if (t * 8 + row != left_out) products[t] += sign * (o[0] * x.x + o[1] * x.y);
  });
}

/// O_t += factor(t) X_t
template <class Shape, class Factor>
__device__ __forceinline__ void add_rows(typename Shape::Output& O, const typename Shape::ValueTile& X, Factor factor) {
  const int row = fresh_lane() / 4;
  for_each_pair<Shape>(O, X, [&](int t, float* o, float2 x) {
    const float f = factor(t * 8 + row);
    o[0] += f * x.x;
    o[1] += f * x.y;
  });
}

}  // namespace tutorial::tile
