#pragma once
/// @file
/// How the kernels that prepare PreparedUpdates write a chunk: U = -T to shared memory, and products of the warpgroup
/// to memory, each warp its 16 rows as soon as it has them.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/kda/prepare_updates.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/tensor_map.hpp"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/panel_tile.cuh"

namespace tutorial::kda {

/// The tensors that bulk copies write, 16 rows at a time. A kernel takes them as `const __grid_constant__ UpdateMaps`.
struct UpdateMaps {
  TensorMap J, R;
};

/// Rows of a tensor of PreparedUpdates.
/// @param columns of it
/// @param rows of a tile
inline TensorMap rows_map(const PreparedUpdates& x, const Bf16Arguments& a, __nv_bfloat16* data, int columns,
                          int rows) {
  const std::int64_t padded = std::int64_t(x.N) * tile::kChunk;
  return tile_map(packed(data, a.H, padded, columns), {a.B, a.H, padded, columns}, rows);
}

/// Requires: an empty warpgroups_unsupported().
inline UpdateMaps stored_maps(const PreparedUpdates& x, const Bf16Arguments& a) {
  return {rows_map(x, a, x.J, a.Dk, delta_rule::kBlock), rows_map(x, a, x.R, tile::kChunk, delta_rule::kBlock)};
}

/// Writes row r of the blocks of U, with zeros to the right of the diagonal.
__device__ __forceinline__ void put_row(const delta_rule::SquarePanel& high, const delta_rule::SquarePanel& low,
                                        const delta_rule::SplitRow& U, int r) {
  using delta_rule::kBlock, delta_rule::kBlocks, delta_rule::SquarePanel;
  const int lane = int(lane_index()), unit = SquarePanel::unit(r * kBlock + lane % 16, lane / 16 * 8);
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    const delta_rule::SplitFragment<4> block = c <= r ? U[c] : delta_rule::SplitFragment<4>{};
    stmatrix(high.data + SquarePanel::advance(unit, 0, c * kBlock), block.high);
    stmatrix(low.data + SquarePanel::advance(unit, 0, c * kBlock), block.low);
  }
}

/// Rounds 16 rows of a product, those of the warp, and stores them.
/// @param row where they begin in the tile
template <int kColumns>
__device__ __forceinline__ void store_sums(const tile::PanelTile<kColumns>& tile, const TensorMap& map,
                                           const float (&sums)[kColumns / 2], int row, TileOrigin origin) {
  const int lane = int(lane_index()), unit = tile.unit(row + lane % 16, lane / 16 * 8);
#pragma unroll
  for (int d = 0; d < kColumns; d += 16) {
    std::uint32_t two[4];
    wgmma_fragment(two, sums, d);
    stmatrix(tile.data + tile.advance(unit, 0, d), two);
  }
  fence_async_proxy();
  __syncwarp();
  if (lane > 0) return;
#pragma unroll
  for (int panel = 0; panel < kColumns / 64; ++panel) {
    store_tile(map, tile.data + panel * tile.kPanelElements + row * 64, origin);
    origin.column += 64;
  }
}

}  // namespace tutorial::kda
