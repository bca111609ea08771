#pragma once
/// @file
/// A chunk of PreparedUpdates, and V, on their way to the warpgroups of a walk: bulk copies of all but the decays.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/kda/prepare_updates.hpp"
#include "common/device/tensor_map.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::kda {

/// The tensors that bulk copies read. A kernel takes them as `const __grid_constant__ UpdateTileMaps`.
struct UpdateTileMaps {
  TensorMap Q, K, J, R, v;
};

/// Requires: an empty warpgroups_unsupported().
inline UpdateTileMaps update_maps(const PreparedUpdates& x, const Bf16Arguments& a) {
  const std::int64_t rows = std::int64_t(x.N) * tile::kChunk;
  const auto map = [&](__nv_bfloat16* data, int columns) {
    return tile_map(packed(data, a.H, rows, columns), {a.B, a.H, rows, columns}, tile::kChunk);
  };
  return {map(x.Q, a.Dk), map(x.K, a.Dk), map(x.J, a.Dk), map(x.R, tile::kChunk),
          tile_map(a.v, tile::tensor_sizes(a, a.Dv), tile::kChunk)};
}

/// A chunk, without its decays.
template <class Shape>
struct UpdateTiles {
  typename Shape::KeyTile K, Q, J;  ///< K+, Q+, -J
  typename Shape::ValueTile V;      ///< all of the block's columns
  delta_rule::SquarePanel R;        ///< -R

  /// Of all tiles.
  static constexpr int kBytes =
      tile::kChunk * (3 * Shape::kDk + Shape::kDv + tile::kChunk) * int(sizeof(__nv_bfloat16));

  /// @param memory kBytes in shared memory, aligned to 1024
  __device__ __forceinline__ explicit UpdateTiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)},
        Q{K.data + tile::kChunk * Shape::kDk},
        J{Q.data + tile::kChunk * Shape::kDk},
        V{J.data + tile::kChunk * Shape::kDk},
        R{V.data + tile::kChunk * Shape::kDv} {}

  /// Starts to load them. Called by one thread.
  /// @param barrier counts their bytes
  __device__ __forceinline__ void load(const UpdateTileMaps& maps, Barrier& barrier, int b, int h, int t,
                                       int first_column) const {
    const TileOrigin origin{.position = t, .head = h, .batch = b};
    barrier.arrive_expect(kBytes);
    tile::load_panels(K, maps.K, barrier, origin);
    tile::load_panels(V, maps.v, barrier, {.column = first_column, .position = t, .head = h, .batch = b});
    tile::load_panels(Q, maps.Q, barrier, origin);
    tile::load_panels(J, maps.J, barrier, origin);
    tile::load_panels(R, maps.R, barrier, origin);
  }
};

}  // namespace tutorial::kda
