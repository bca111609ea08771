#pragma once
/// @file
/// Where a preparing warp of `one_kernel` stores the results of decay_sub_chunk(): in the chunk's tiles in shared
/// memory, as bf16, with decays in fp32.

#include <cuda_runtime.h>

#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/decayed_tiles.cuh"

namespace tutorial::fused_gla {

/// A lane's elements of the rows.
template <class Shape>
struct RowsToTiles {
  static constexpr int kElements = Shape::kElements;
  /// A lane's elements of a row in bf16.
  using Bf16Elements = decltype(tile::Row<kElements>::q);
  /// The same in fp32.
  using FloatElements = decltype(tile::Row<kElements>::g);

  const tile::DecayedTiles<Shape>& tiles;
  int sub_chunk, d;  ///< the first element is d

  /// The lane's elements of a row in a tile.
  __device__ __forceinline__ Bf16Elements& elements(const typename Shape::KeyTile& to, int row) const {
    const int unit = to.unit(sub_chunk * tile::kSubChunk + row, d / 8 * 8);
    return *reinterpret_cast<Bf16Elements*>(to.data + unit + d % 8);
  }
  /// q_t, decayed from the sub-chunk's start.
  __device__ __forceinline__ void query(int t, const float (&row)[kElements]) const {
    elements(tiles.Q, t) = tile::packed_row(row);
  }
  /// k_i, decayed to its end.
  __device__ __forceinline__ void key(int i, const float (&row)[kElements]) const {
    elements(tiles.K, i) = tile::packed_row(row);
  }
  /// The decay of the whole sub-chunk.
  __device__ __forceinline__ void decay(const float (&row)[kElements]) const {
    *reinterpret_cast<FloatElements*>(tiles.decays + sub_chunk * Shape::kDk + d) = tile::float_row(row);
  }
};

}  // namespace tutorial::fused_gla
