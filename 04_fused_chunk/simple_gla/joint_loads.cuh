#pragma once
/// @file
/// A ring of chunks on Hopper for which one warp requests tiles and computes decays: request_chunks() and store_decays()
/// (chunk_loads.cuh) in one loop.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/chunk_loads.cuh"
#include "04_fused_chunk/simple_gla/warpgroup_gate.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/warp.cuh"
#include "common/tile/bulk_tiles.cuh"

namespace tutorial::simple_gla {

/// Called by a warp. Nobody reads the tiles by ldmatrix. @param tiles_of of a stage @param store (stage, sums)
template <int kStages, class TilesOf, class Store>
__device__ __forceinline__ void request_with_decays(Barrier (&full)[kStages], Barrier (&empty)[kStages],
                                                    TilesOf tiles_of, const tile::ChunkMaps& maps,
                                                    const Bf16Arguments& a, const BlockChunks& c, Store store) {
  auto ring = Ring<kStages>::producer();
  for_each_chunk_with_g(a, c.b, c.h, c.first, c.step, c.count, c.end, [&](int t, float2 g) {
    const auto tiles = tiles_of(ring.stage());
    Barrier& barrier = full[ring.stage()];
    ring.wait(empty);
    if (lane_index() == 0) {
      barrier.arrive_expect(tiles.kBytes);
      load_chunk(tiles, maps, barrier, c.b, c.h, t, c.first_column);
    }
    store(ring.stage(), ChunkSums(g));
    __syncwarp();
    if (lane_index() == 0) barrier.arrive();
    ring.advance();
  });
}

}  // namespace tutorial::simple_gla
