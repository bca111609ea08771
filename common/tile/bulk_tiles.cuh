#pragma once
/// @file
/// A chunk's tiles by bulk copies: one thread requests them, and a barrier counts their bytes.

#include <cuda_runtime.h>

#include "common/device/bulk_copy.cuh"
#include "common/device/eviction.hpp"
#include "common/device/mbarrier.cuh"
#include "common/device/source_location.hpp"
#include "common/device/tensor_map.hpp"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/tensor_sizes.hpp"

namespace tutorial::tile {

/// The tensors that a walk over chunks reads. A kernel takes them as `const __grid_constant__ ChunkMaps`.
struct ChunkMaps {
  TensorMap q, k, v;
};

/// The maps of an operator's q, k and v. Requires: an empty bulk_copies_unsupported().
template <class Arguments>
ChunkMaps chunk_maps(const Arguments& a) {
  return {tile_map(a.q, tensor_sizes(a, a.Dk), kChunk), tile_map(a.k, tensor_sizes(a, a.Dk), kChunk),
          tile_map(a.v, tensor_sizes(a, a.Dv), kChunk)};
}

/// The map of an operator's o, for panels of 64 columns. Requires: an empty bulk_copies_unsupported().
template <class Arguments>
TensorMap output_map(const Arguments& a) {
  return tile_map(a.o, tensor_sizes(a, a.Dv), kChunk);
}

/// Starts to load kColumns columns of a tensor as panels of 64, which lie one behind the other in shared memory. Called
/// by one thread.
/// @param barrier expects their bytes
/// @param origin where in the tensor the first panel begins
/// @param eviction of these columns in the second-level cache
template <int kColumns, int kRows>
__device__ __forceinline__ void load_panels(const PanelTile<kColumns, kRows>& tile, const TensorMap& map,
                                            Barrier& barrier, TileOrigin origin, Eviction eviction = Eviction::kNormal,
                                            SourceLocation where = SourceLocation::current()) {
#pragma unroll
  for (int panel = 0; panel < kColumns / 64; ++panel) {
    load_tile(map, tile.data + panel * tile.kPanelElements, barrier, origin, eviction, where);
    origin.column += 64;
  }
}

/// Starts to load a chunk's Q, K and V into the tiles of these names, or only K and V if `tiles` has no Q. Called by
/// one thread.
/// @param tiles ChunkTiles, StateTiles, or others with such members
/// @param barrier expects their bytes: kBytes of ChunkTiles or StateTiles
/// @param t the chunk's first position, of head h of batch entry b
/// @param first_column the first of V's columns
template <class Tiles>
__device__ __forceinline__ void load_chunk(const Tiles& tiles, const ChunkMaps& maps, Barrier& barrier, int b, int h,
                                           int t, int first_column) {
  if constexpr (requires { tiles.Q; }) load_panels(tiles.Q, maps.q, barrier, {.position = t, .head = h, .batch = b});
  load_panels(tiles.K, maps.k, barrier, {.position = t, .head = h, .batch = b});
  load_panels(tiles.V, maps.v, barrier, {.column = first_column, .position = t, .head = h, .batch = b});
}

}  // namespace tutorial::tile
