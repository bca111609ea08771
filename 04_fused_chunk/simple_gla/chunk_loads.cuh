#pragma once
/// @file
/// Rings of chunks on Hopper: a thread that requests tiles, and a warp that computes the decays beside them. A barrier of
/// `full` counts two: the bytes of the tiles, and an arrival for the decays.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/chunk_decays.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/tile/bulk_tiles.cuh"

namespace tutorial::simple_gla {

/// The chunks of a block: at first, first + step, ..., `count` of them, of head h of batch entry b.
struct BlockChunks {
  int b, h, first, step, count;
  int end;           ///< of the block's positions
  int first_column;  ///< of V
};

/// One thread requests the tiles of all chunks. They may have been read by ldmatrix. @param tiles_of of a stage
template <int kStages, class TilesOf>
__device__ __forceinline__ void request_chunks(Barrier (&full)[kStages], Barrier (&empty)[kStages], TilesOf tiles_of,
                                               const tile::ChunkMaps& maps, const BlockChunks& c) {
  auto ring = Ring<kStages>::producer();
  for (int n = 0; n < c.count; ++n) {
    const auto tiles = tiles_of(ring.stage());
    Barrier& barrier = full[ring.stage()];
    ring.wait(empty);
    fence_async_proxy();  // V has been read by ldmatrix
    barrier.arrive_expect(tiles.kBytes);
    load_chunk(tiles, maps, barrier, c.b, c.h, c.first + n * c.step, c.first_column);
    ring.advance();
  }
}

/// One warp adds up the gates of all chunks. @param store (stage, sums) writes what is made of them
template <int kStages, class Store>
__device__ __forceinline__ void store_decays(Barrier (&full)[kStages], Barrier (&empty)[kStages],
                                             const Bf16Arguments& a, const BlockChunks& c, Store store) {
  auto ring = Ring<kStages>::producer();
  for_each_chunk_with_g(a, c.b, c.h, c.first, c.step, c.count, c.end, [&](int, float2 g) {
    const ChunkSums sums(g);
    ring.wait(empty);
    store(ring.stage(), sums);
    __syncwarp();
    if (lane_index() == 0) full[ring.stage()].arrive();
    ring.advance();
  });
}

}  // namespace tutorial::simple_gla
