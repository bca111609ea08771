/// @file
/// `cluster`: the two blocks of a head share its Q and K, and each computes half of its scores.
///
/// Idea: at Dv = 128 a head has two blocks, and both load the same Q and K and compute the same scores. A cluster of
/// two blocks runs on two neighbouring multiprocessors, and each can write into the other's shared memory. So each
/// block loads one half of the rows of Q and K, and the copy engine writes them to both blocks (a multicast). The
/// scores of chunk n are computed by block n % 2 alone, which pushes P to the other one. Only V, S and O are each
/// block's own.
///
///     block 0 | scores of 0 | push | scores of 2 | push |       P of a chunk lies at the same place in both blocks,
///     block 1 | scores of 1 | push | scores of 3 | push |       and so do Q and K
///
/// Improves on: each block of `queued_products` loads all of Q and K, and computes all scores of its head.
/// Unchanged: the work and timing of the state's warpgroup, the precision, and the bytes from memory.
/// Synchronization: each set of tiles has its own P. `full` says that a set has arrived, from both blocks. It also says
/// that both blocks have read the set's former P, so nothing else guards P. `scores_full` counts one arrival. In the
/// block that has computed P, the thread that pushes arrives. In the other block the loading thread arrives, which
/// announces the bytes of the push. The state's warps have read a set when they arrive at `empty`; the scores' warps
/// have read it earlier, because the state has waited for the scores. The loading thread passes this message on: it
/// waits for `empty`, tells the other block's `peer_empty`, and waits for its own. An arrival at another block's
/// barrier needs a fence for the whole GPU, which takes longer than a chunk. So the message is a push of 16 bytes,
/// whose content does not matter: each block expects them at its own `peer_empty`.
/// Start and end: no block reaches into the other one before its barriers are initialised, or after it has ended. So
/// the kernel begins and ends with a barrier of the cluster. The barriers lie in dynamic shared memory, as does
/// everything that other blocks access.
/// Thread mapping: cluster (x, h, b) takes 128 columns of Dv, and each of its blocks takes 64. Where the second block
/// has no columns, it still loads tiles and computes scores. One warpgroup loads and stores, one computes scores, and
/// one holds the state.
/// Resources: four sets of Q, K, V and P, and two O: 208 KB of shared memory at Dk = 128, one block per multiprocessor.
/// Bound by: as `queued_products`, which is faster with 32 heads (docs/notebook/02_linear_attention.md).
/// Requires: as `warpgroup_mma`.
/// Weakness: the two blocks keep in step, and each pays for the other's delays.
/// Sources: as `specialized`; PTX ISA, "cp.async.bulk.tensor: .multicast::cluster" and "cp.async.bulk".

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/cluster.cuh"
#include "common/device/launch.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;               // chunks in shared memory, with their P
constexpr int kDepth = 2;                       // O in shared memory
constexpr int kBlock = 3 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them
constexpr int kHalf = kChunk / 2;               // rows of Q and K that a block loads

static_assert(kPipelineDepth % 2 == 0, "the scores of a place are always the same block's");

struct Barriers {
  Barrier full[kPipelineDepth], empty[kPipelineDepth], peer_empty[kPipelineDepth], scores_full[kPipelineDepth];
  Barrier output_full[kDepth], output_empty[kDepth];
  alignas(16) unsigned char outbox[16], inbox[16];  // a message's bytes; their values do not matter
};

template <class Shape>
constexpr std::size_t kTileBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes +
                                   (kPipelineDepth + kDepth) * PanelTile<64>::kPanelBytes;

/// Starts to load rows `first_row` to `first_row + kHalf - 1` of a tile into both blocks, whose barriers expect them.
template <int kColumns>
__device__ __forceinline__ void load_half_for_both(PanelTile<kColumns> tile, const TensorMap& map, Barrier& barrier,
                                                   int first_row, TileOrigin origin) {
  origin.position += first_row;
#pragma unroll
  for (int panel = 0; panel < kColumns / 64; ++panel) {
    load_tile_multicast(map, tile.data + panel * tile.kPanelElements + first_row * 64, barrier, origin, 0b11);
    origin.column += 64;
  }
}

/// Grid (tiles of 64 columns of Dv, rounded up to an even number; H; B), in clusters of two along x. `maps` has tiles
/// of kHalf rows for q and k.
template <class Shape>
__global__ void __launch_bounds__(kBlock, 1) cluster_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  const int rank = int(cluster_rank());
  const unsigned peer = 1 - rank;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  auto& barriers = *reinterpret_cast<Barriers*>(memory + kTileBytes<Shape>);
  auto &full = barriers.full, &empty = barriers.empty, &peer_empty = barriers.peer_empty;
  auto& scores_full = barriers.scores_full;
  auto &output_full = barriers.output_full, &output_empty = barriers.output_empty;
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : peer_empty) barrier.init(1);
    for (Barrier& barrier : scores_full) barrier.init(1);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  cluster_sync();

  const int group = int(threadIdx.x) / kWarpgroup, thread = int(threadIdx.x) % kWarpgroup;
  if (group == 0) {
    decrease_registers<152>();
    auto ring = Ring<kPipelineDepth>::consumer();
    for (int t = 0; t < a.L; t += kChunk) {
      if (t / kChunk % 2 == rank) {
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        const PanelTile<64> P = panel(ring.stage());
        WarpgroupScores scores;
        ring.wait(full);
        wgmma_fence(scores);
        start_scores(scores, tiles.Q, tiles.K);
        wgmma_commit();
        wgmma_wait<0>(scores);
        store_masked_scores(P, scores);
        fence_async_proxy();
        wait_at_named_barrier(1, kWarpgroup);
        if (thread == 0) {
          push_shared(P.data, P.data, P.kPanelBytes, scores_full[ring.stage()], peer);
          scores_full[ring.stage()].arrive();
        }
      }
      ring.advance();
    }
  } else if (group == 1) {
    decrease_registers<72>();
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = 0; t < a.L; t += kChunk) {
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        ring.wait(empty);
        if (t >= kPipelineDepth * kChunk) {
          peer_empty[ring.stage()].arrive_expect(sizeof(barriers.inbox));
          push_shared(barriers.inbox, barriers.outbox, sizeof(barriers.inbox), peer_empty[ring.stage()], peer);
        }
        full[ring.stage()].arrive_expect(tiles.kBytes);
        if (t / kChunk % 2 != rank) scores_full[ring.stage()].arrive_expect(PanelTile<64>::kPanelBytes);
        load_panels(tiles.V, maps.v, full[ring.stage()],
                    {.column = first_column, .position = t, .head = h, .batch = b});
        ring.wait_cluster(peer_empty);
        load_half_for_both(tiles.Q, maps.q, full[ring.stage()], rank * kHalf, {.position = t, .head = h, .batch = b});
        load_half_for_both(tiles.K, maps.k, full[ring.stage()], rank * kHalf, {.position = t, .head = h, .batch = b});
        ring.advance();
      }
    } else if (thread >= 32) {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                     panel(kPipelineDepth + output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else {
    increase_registers<240>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto output_ring = Ring<kDepth>::producer();

    WarpgroupOutput O;
    const auto start_update = [&] {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      ring.wait(full);
      ring.advance();
      wgmma_fence(S);
      start_state_update<Shape::kDk>(S, tiles.V, tiles.K);
      wgmma_commit();
    };
    const auto start_outputs = [&](RoundedState<Shape::kDk>& s) {
      const ChunkTiles<Shape> tiles = tiles_of(read.stage());
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      start_output_from_scores(O, tiles.V, panel(read.stage()));
      wgmma_commit();
    };
    // Releases the tiles that the outputs were computed from, and hands the outputs to the warps that store them.
    const auto finish_outputs = [&] {
      if (lane_index() == 0) empty[read.stage()].arrive();
      read.advance();
      output_ring.wait(output_empty);
      put_output(panel(kPipelineDepth + output_ring.stage()), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
    };
    // Computes the outputs of a chunk from s, the rounded state before it. s_after becomes the rounded state after it,
    // and S the state after the next chunk.
    const auto walk = [&](RoundedState<Shape::kDk>& s, RoundedState<Shape::kDk>& s_after) {
      start_outputs(s);
      round_state<Shape::kDk>(s_after, S);
      start_update();
      wgmma_wait<1>(O, s);
      finish_outputs();
      read.wait_cluster(scores_full);
      wgmma_wait<0>(S);
    };

    // Computes the outputs of the last chunk.
    const auto walk_last = [&](RoundedState<Shape::kDk>& s) {
      start_outputs(s);
      wgmma_wait<0>(O, s);
      finish_outputs();
    };

    RoundedState<Shape::kDk> even, odd;
    round_state<Shape::kDk>(even, S);
    start_update();
    read.wait_cluster(scores_full);
    wgmma_wait<0>(S);
    int t = 0;
    for (; t + 2 * kChunk < a.L; t += 2 * kChunk) {
      walk(even, odd);
      walk(odd, even);
    }
    if (t + kChunk < a.L) {
      walk(even, odd);
      walk_last(odd);
    } else {
      walk_last(even);
    }
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
  cluster_sync();
}

}  // namespace

void cluster(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    const ChunkMaps maps{tile_map(a.q, tensor_sizes(a, a.Dk), kHalf), tile_map(a.k, tensor_sizes(a, a.Dk), kHalf),
                         tile_map(a.v, tensor_sizes(a, a.Dv), kChunk)};
    launch(cluster_kernel<Shape>, launch_in_pairs<Shape>(extents_of(a), kBlock, kTileBytes<Shape> + sizeof(Barriers)),
           a, maps);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::linear_attention
