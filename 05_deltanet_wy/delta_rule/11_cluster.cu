/// @file
/// Stage 11, `cluster`: T beside the chain, too; the two blocks of a head share the work for it.
///
/// Idea: T and P depend on a single chunk, so they may be computed at any time before the chain needs them, also in other
/// warps of the walk. Then nothing but q, k, v, beta, o and states is in device memory. The work for T, with many short
/// steps, fills the time in which the chain waits for its products. But a warpgroup takes longer for the T of a chunk
/// than the chain takes for two chunks (matrices.cuh). At Dv = 128 a head has two blocks, and both need the same T and P.
/// In a cluster each block can write into the other's shared memory. So each block computes T and P of every second
/// chunk in two warpgroups, and the copy engine pushes them to the other block. A warpgroup then has four chunks' time
/// for one chunk.
///
///     block 0, warpgroup 1 | T, P of 4 ................... | push
///     block 1, warpgroup 1         | T, P of 5 ................... | push
///     block 0, warpgroup 2                 | T, P of 6 ................... | push
///     block 1, warpgroup 2                         | T, P of 7 ................... | push
///     both chains                  | 0     | 1     | 2     | 3     | 4     | 5     | 6     | 7     |
///
/// Tiles of Q and K cannot wait in shared memory for as long as that. So they are loaded twice: T and P of a chunk have
/// a tile of their own, which both warpgroups of a block use in turn. It is free as soon as K K^T and Q K^T are there.
///
/// Grows out of: 10_scores_in_walk.cu; large step: T by a warpgroup, from tiles in shared memory to tiles in shared
/// memory, and a cluster of blocks that push to each other. A kernel that prepares T that way (prepare_inverses.cu), or a
/// walk whose own block computes all T and P (dispatch/one_kernel.cu), would be in between; the first is as fast as what
/// it replaces, and the second is slower
/// Improves on: in `scores_in_walk` T goes through memory, and k is read twice. With many heads that takes longer than the
/// walk. The chain, too, is a little shorter: Q S is two products, one before and one behind the product with T. Each
/// fills a gap in which the chain rounds sums. O is in use for longer, so the chain has 224 registers per thread.
/// Unchanged: 64 columns per block, and what is rounded.
///
/// Equation, shapes: those of `fused`, without T and P.
/// Thread mapping: cluster (x, h, b) walks over the chunks of a head with 128 columns of Dv, each of its blocks with 64.
/// Where the second block has no columns, it still computes T and P. Of
/// warpgroup 0 a thread loads for the chain, another one for T and P, and two warps store. Warpgroups 1 and 2 compute T
/// and P, and warpgroup 3 has the state.
/// Synchronization: the chain waits for K and Q apart, since it needs Q later. T and P of chunk n lie in slot n % 4 of
/// both blocks, so each of the four warpgroups has a slot of its own. They are there (`matrices_full`) when the
/// warpgroup that has computed them has arrived, or its push. That warpgroup may store again when both chains have read
/// them (`slot_free`). A chain tells it to a warpgroup of its own block by arriving there. For the other block the
/// loading thread sends a message, a push of 16 bytes as in chapter 02's `cluster`.
/// Start and end: as in chapter 02's `cluster`, the kernel begins and ends with a barrier of the cluster, and barriers
/// lie in dynamic shared memory.
/// Resources: at Dk = 128 two tiles of Q and K for the chain and one for T and P, two of V, T and P of four chunks (20
/// KB each), a tile of outputs, and 10 KB per warpgroup for the inverse: 220 KB of shared memory, one block per
/// multiprocessor.
/// Work: 6 Dk Dv + 320 Dv operations per position on tensor cores, 256 Dk per 128 columns, and the inverse.
/// Bytes: v and o once; q and k three times per 128 columns, all but once from the second-level cache, beta once. The
/// cache is told to keep what is loaded for T and P, and not v and o.
/// Bound by: the chain; with 64 heads and more also the power of an H200, which lowers its clock rate, or the memory of
/// an H100.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: the two blocks keep in step. With Dv <= 64 the second block's chain is in vain.
/// Sources: T and P of a chunk in warps of their own: FlashInfer's delta rule for Hopper; PTX ISA, "cp.async.bulk".

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/cluster_memory.cuh"
#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/cluster.cuh"
#include "common/device/eviction.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kBlockThreads = 4 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 64;  // of them

/// Grid (tiles of 64 columns of Dv, rounded up to an even number; H; B), in clusters of two along x.
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    cluster_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  const int rank = int(cluster_rank());
  const ClusterMemory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};
  ClusterBarriers& barriers = memory.barriers();
  auto &k_full = barriers.k_full, &q_full = barriers.q_full, &empty = barriers.empty;
  auto &v_full = barriers.v_full, &v_empty = barriers.v_empty;

  const int group = int(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) barriers.init();
  cluster_sync();

  if (group == 0) {
    decrease_registers<64>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      auto ring = Ring<kClusterStages>::producer();
      auto v_ring = Ring<kClusterStages>::producer();
      auto read_ring = Ring<1>::consumer();
      const auto load_values = [&](int t) {
        v_ring.wait(v_empty);
        fence_async_proxy();  // V has been read by ldmatrix
        v_full[v_ring.stage()].arrive_expect(memory.kValueBytes);
        load_panels(memory.V(v_ring.stage()), maps.v, v_full[v_ring.stage()],
                    {.column = first_column, .position = t, .head = h, .batch = b}, Eviction::kFirst);
        v_ring.advance();
      };
      load_values(0);
      for (int n = 0, t = 0; t < a.L; ++n, t += kChunk) {
        ring.wait(empty);
        k_full[ring.stage()].arrive_expect(memory.kKeyBytes);
        load_panels(memory.K(ring.stage()), maps.k, k_full[ring.stage()], {.position = t, .head = h, .batch = b});
        q_full[ring.stage()].arrive_expect(memory.kKeyBytes);
        load_panels(memory.Q(ring.stage()), maps.q, q_full[ring.stage()], {.position = t, .head = h, .batch = b});
        ring.advance();
        if (rank_of(n) != rank) barriers.matrices_full[n % kGroups].arrive_expect(ChunkMatrices::kBytes);
        if (t + kChunk < a.L) load_values(t + kChunk);
        // T and P of chunk n + 2 lie where those of n - 2 were, which the chain has just read.
        if (n + 2 >= kGroups && t + 2 * kChunk < a.L) pass_place_on(barriers, read_ring, n + 2, rank);
      }
    } else if (thread == 32) {
      load_pairs(a, maps, memory, rank);
    } else if (thread >= 64) {
      auto output_ring = Ring<1>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
        output_ring.wait(&barriers.output_full);
        store_tile_by<kStoreThreads, Eviction::kFirst>(thread - 64, a.o.row(b, h, t) + first_column, a.o.stride_l,
                                                       a.L - t, columns, memory.O(), [&] {
                                                         __syncwarp();
                                                         if (lane_index() == 0) barriers.output_empty.arrive();
                                                       });
        output_ring.advance();
      }
    }
  } else if (group < 3) {
    decrease_registers<112>();
    compute_shared_matrices(a, memory, rank, group - 1);
  } else {
    increase_registers<224>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kClusterStages>::consumer();
    auto v_ring = Ring<kClusterStages>::consumer();  // one chunk ahead of the others
    auto matrix_ring = Ring<kGroups>::consumer();
    auto output_ring = Ring<1>::producer();
    int next_in_slot = kGroups;  // the chunk whose T and P replace those of this one

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, v_new, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_columns();
    // residual = -V of the next chunk.
    const auto load_values = [&] {
      v_ring.wait(v_full);
      load_signed_values(residual, memory.V(v_ring.stage()), unit, kMinus);
      __syncwarp();  // all lanes have read their part of V
      if (lane_index() == 0) v_empty[v_ring.stage()].arrive();
      v_ring.advance();
    };
    // residual += K S of the chunk of ring.
    const auto start_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      ring.wait(k_full);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, memory.K(ring.stage()));
      wgmma_commit();
    };
    // O = half of Q S, of the chunk of ring.
    const auto start_output = [&] {
      ring.wait(q_full);
      wgmma_fence(O, s);
      start_half_of_output<Shape::kDk>(O, s, memory.Q(ring.stage()), 0);
      wgmma_commit();
    };
    // Starts from the residual of a chunk and half of its outputs: computes its v_new, updates S, computes the rest of
    // its outputs, and both for the next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const ChunkMatrices matrices = memory.matrices(matrix_ring.stage());
      round_columns(factor, residual);
      matrix_ring.wait_cluster(barriers.matrices_full);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, matrices.T);
      wgmma_commit();
      start_half_of_output<Shape::kDk>(O, s, memory.Q(ring.stage()), 1);
      wgmma_commit();
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      wgmma_fence(S, factor, residual);
      start_state_update<Shape::kDk>(S, factor, memory.K(ring.stage()));
      wgmma_commit();
      start_output_from_values(O, factor, matrices.P);
      wgmma_commit();
      wgmma_wait<1>(S);
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      if constexpr (HasNext::value) {
        start_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      if (lane_index() == 0 && next_in_slot * kChunk < a.L) {
        const bool is_own = rank_of(next_in_slot) == rank;
        (is_own ? barriers.slot_free[group_of(next_in_slot)] : barriers.slot_read).arrive();
      }
      ++next_in_slot;
      matrix_ring.advance();
      output_ring.wait(&barriers.output_empty);
      put_output(memory.O(), O, a.scale, unit);
      __syncwarp();
      if (lane_index() == 0) barriers.output_full.arrive();
      output_ring.advance();
      if constexpr (HasNext::value) {
        start_output();
        wgmma_wait<1>(residual);
      }
    };

    load_values();
    start_state_product();
    start_output();
    wgmma_wait<1>(residual);
    for (int t = 0; t + kChunk < a.L; t += kChunk) walk(std::true_type());
    walk(std::false_type());
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
    launch(cluster_kernel<Shape>,
           launch_in_pairs<Shape>(extents_of(a), kBlockThreads, std::size_t(ClusterMemory<Shape>::kBytes)), a,
           chunk_maps(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::delta_rule
