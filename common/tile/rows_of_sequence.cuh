#pragma once
/// @file
/// Bulk copies of a sequence's chunks where other sequences follow without a gap (packed sequences).

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/panel_tile.cuh"

namespace tutorial::tile {

/// Sets the rows of a tile from `first` on to zeros, also for products of warpgroups, which need a fence. Called by a warp.
template <int kColumns>
__device__ __forceinline__ void clear_rows(const PanelTile<kColumns>& tile, int first) {
  constexpr int kUnits = 64 / 8;  // of a row of a panel
  for (int panel = 0; panel < kColumns / 64; ++panel) {
    auto* units = reinterpret_cast<uint4*>(tile.data + panel * tile.kPanelElements);
    for (int i = first * kUnits + int(lane_index()); i < kChunk * kUnits; i += 32) {
      store_for_copies(units + i, make_uint4(0, 0, 0, 0));
    }
  }
}

/// Stores the rows of a tile of 64 columns that belong to the sequence; a bulk store would write the others, too. Called by
/// a warp. It takes few registers.
/// @param o the tile's first row and column @param columns that exist, a multiple of 8
template <class Tile>
__device__ __forceinline__ void store_rows_of_sequence(__nv_bfloat16* o, std::int64_t stride_l, int rows, int columns,
                                                       const Tile& tile) {
  constexpr int kUnits = 64 / 8, kStep = 32 / kUnits;
  const int column = int(lane_index()) % kUnits * 8;
  if (column >= columns) return;
  int row = int(lane_index()) / kUnits;
  o += row * stride_l + column;
#pragma unroll 1
  for (; row < rows; row += kStep) {
    store_global(reinterpret_cast<uint4*>(o), *reinterpret_cast<const uint4*>(tile.data + tile.unit(row, column)));
    o += kStep * stride_l;
  }
}

/// Waits for tiles of a chunk, makes the rows zeros that belong to the next sequence, and then says that the tiles are
/// there. Called by a warp.
/// @param arrived for the bytes of the last chunk of the sequence @param full for those who wait for the tiles
template <class... Tiles>
__device__ __forceinline__ void clear_and_pass_on(Barrier& arrived, Barrier& full, int rows, const Tiles&... tiles) {
  arrived.wait(0);
  (clear_rows(tiles, rows), ...);
  fence_async_proxy();
  __syncwarp();
  if (lane_index() == 0) full.arrive();
}

/// Loads a chunk of which `rows` rows belong to the sequence. In K and V the others become zeros: what they would add to
/// the state is another sequence's. (Their outputs are not stored, and the mask hides their keys.) Called by a warp.
/// @param arrived for the bytes of the last chunk of the sequence, as only the other rows are ready then
template <class Tiles>
__device__ __forceinline__ void load_rows_of_sequence(const Tiles& tiles, const ChunkMaps& maps, Barrier& full,
                                                      Barrier& arrived, int rows, int h, int t, int first_column) {
  if (lane_index() == 0) {
    Barrier& barrier = rows < kChunk ? arrived : full;
    barrier.arrive_expect(Tiles::kBytes);
    load_chunk(tiles, maps, barrier, 0, h, t, first_column);
  }
  if (rows < kChunk) clear_and_pass_on(arrived, full, rows, tiles.K, tiles.V);
}

}  // namespace tutorial::tile
