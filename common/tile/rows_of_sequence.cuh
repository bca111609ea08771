#pragma once
/// @file
/// Bulk copies of a sequence's chunks where other sequences follow without a gap (packed sequences).

#include <cuda_runtime.h>

#include "common/device/mbarrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/panel_tile.cuh"

namespace tutorial::tile {

/// Makes the rows of a tile zeros that belong to the next sequence. Called by a warp.
/// @param rows that do not
template <int kColumns>
__device__ __forceinline__ void clear_rows_behind(const PanelTile<kColumns>& tile, int rows) {
  constexpr int kUnits = 64 / 8;  // of a row of a panel
  for (int panel = 0; panel < kColumns / 64; ++panel) {
    auto* units = reinterpret_cast<uint4*>(tile.data + panel * tile.kPanelElements);
    for (int i = rows * kUnits + int(lane_index()); i < kChunk * kUnits; i += 32) {
      store_for_copies(units + i, make_uint4(0, 0, 0, 0));
    }
  }
}

/// Waits for tiles of a chunk, makes the rows zeros that belong to the next sequence, and then says that the tiles are
/// there. Called by a warp.
/// @param arrived for the bytes of the last chunk of the sequence @param full for those who wait for the tiles
template <class... Tiles>
__device__ __forceinline__ void clear_and_pass_on(Barrier& arrived, Barrier& full, int rows, const Tiles&... tiles) {
  arrived.wait(0);
  (clear_rows_behind(tiles, rows), ...);
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
