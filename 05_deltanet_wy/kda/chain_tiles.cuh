#pragma once
/// @file
/// A chunk of PreparedTiles, and V, on their way to the warpgroups of a walk: bulk copies of all but the decays.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "05_deltanet_wy/kda/prepared.hpp"
#include "common/device/memory.cuh"
#include "common/device/tensor_map.hpp"
#include "common/device/warp.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::kda {

/// The tensors that bulk copies read. A kernel takes them as `const __grid_constant__ ChainMaps`.
struct ChainMaps {
  TensorMap Q, K, K_end, v;
  TensorMap tiles;  ///< T and P, delta_rule::kPreparedRows rows of 64 columns per chunk
};

/// Requires: an empty warpgroup_chain_unsupported().
inline ChainMaps chain_maps(const PreparedTiles& x, const Bf16Arguments& a) {
  using delta_rule::kPreparedRows, tile::kChunk;
  const std::int64_t rows = std::int64_t(x.N) * kChunk, tile_rows = std::int64_t(x.N) * kPreparedRows;
  const auto keys = [&](__nv_bfloat16* data) {
    return tile_map(packed(data, a.H, rows, a.Dk), {a.B, a.H, rows, a.Dk}, kChunk);
  };
  return {keys(x.Q), keys(x.K), keys(x.K_end), tile_map(a.v, tile::tensor_sizes(a, a.Dv), kChunk),
          tile_map(packed(x.tiles, a.H, tile_rows, kChunk), {a.B, a.H, tile_rows, kChunk}, kPreparedRows)};
}

/// What a walk needs of a chunk while it is still in the chunk before, in shared memory.
template <class Shape>
struct AheadTiles {
  typename Shape::KeyTile K;    ///< K+
  typename Shape::ValueTile V;  ///< all of the block's columns

  static constexpr int kBytes = tile::kChunk * (Shape::kDk + Shape::kDv) * int(sizeof(__nv_bfloat16));

  /// @param memory kBytes in shared memory, aligned to 1024
  __device__ __forceinline__ explicit AheadTiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)}, V{K.data + tile::kChunk * Shape::kDk} {}

  /// Starts to load them. Called by one thread.
  /// @param barrier counts their bytes
  __device__ __forceinline__ void load(const ChainMaps& maps, Barrier& barrier, int b, int h, int t,
                                       int first_column) const {
    barrier.arrive_expect(kBytes);
    tile::load_panels(K, maps.K, barrier, {.position = t, .head = h, .batch = b});
    tile::load_panels(V, maps.v, barrier, {.column = first_column, .position = t, .head = h, .batch = b});
  }
};

/// The rest of a chunk, without its decays.
template <class Shape>
struct ChainTiles {
  typename Shape::KeyTile Q, K_end;          ///< Q+, K-
  delta_rule::SquarePanel T_high, T_low, P;  ///< -T in two bf16

  /// Of all tiles.
  static constexpr int kBytes =
      2 * tile::kChunk * Shape::kDk * int(sizeof(__nv_bfloat16)) + 3 * int(delta_rule::SquarePanel::kPanelBytes);

  /// @param memory kBytes in shared memory, aligned to 1024
  __device__ __forceinline__ explicit ChainTiles(unsigned char* memory)
      : Q{reinterpret_cast<__nv_bfloat16*>(memory)},
        K_end{Q.data + tile::kChunk * Shape::kDk},
        T_high{K_end.data + tile::kChunk * Shape::kDk},
        T_low{T_high.data + T_high.kPanelElements},
        P{T_low.data + T_low.kPanelElements} {}

  /// As AheadTiles::load().
  __device__ __forceinline__ void load(const ChainMaps& maps, Barrier& barrier, int b, int h, int t) const {
    barrier.arrive_expect(kBytes);
    load_tile(maps.tiles, T_high.data, barrier,
              {.position = t / tile::kChunk * delta_rule::kPreparedRows, .head = h, .batch = b});
    tile::load_panels(Q, maps.Q, barrier, {.position = t, .head = h, .batch = b});
    tile::load_panels(K_end, maps.K_end, barrier, {.position = t, .head = h, .batch = b});
  }
};

/// The decays of a head's chunks, which a warp brings to shared memory: four per lane, one chunk ahead of the bulk copies.
template <int kDk>
class ChainDecays {
 public:
  /// @param of_head [N, Dk]
  __device__ __forceinline__ ChainDecays(const float* of_head, int N, int Dk)
      : column_(int(lane_index()) * 4), left_(N), stride_(Dk), from_(of_head + column_) {
    load();
  }
  /// Stores those of the next chunk, and starts to load those after it.
  /// @param decays [kDk] in shared memory
  __device__ __forceinline__ void store(float* decays) {
    if (column_ < kDk) *reinterpret_cast<float4*>(decays + column_) = next_;
    from_ += stride_;
    if (--left_ > 0) load();
  }

 private:
  __device__ __forceinline__ void load() {
    if (column_ < stride_) next_ = load_global(reinterpret_cast<const float4*>(from_));
  }

  int column_, left_, stride_;
  const float* from_;
  float4 next_{};
};

}  // namespace tutorial::kda
