/// @file
/// Stage 12, `three_blocks`: a third block computes T and P for the two blocks of a head.
///
/// Idea: with 32 heads, `cluster` leaves half of the multiprocessors idle, and its chain shares the multiprocessor with
/// the inverses of T. A cluster of three blocks has a multiprocessor for each of the three tasks: blocks 0 and 1 walk,
/// 64 columns each, and block 2 computes T and P of all chunks and pushes them to the other two. It has room for four
/// warpgroups that compute, as many as both blocks of `cluster` have together.
///
///     block 2, warpgroup 1 | T, P of 4 ................... | push to 0
///     block 2, warpgroup 2         | T, P of 5 ................... | push to 1
///     block 0                                                      | push of 4 to 1
///     block 1                                                              | push of 5 to 0
///     both chains                          | 0     | 1     | 2     | 3     | 4     | 5     | 6     |
///
/// What a block can push in a chunk's time is less than T and P twice. So block 2 pushes T and P of a chunk to one of
/// the two blocks, in turn, and this block pushes them to the other one.
///
/// Grows out of: 11_cluster.cu
/// Improves on: in `cluster` the chain waits for the tensor cores and for issue slots that T and P take.
/// Unchanged: the chain, the four slots, how T and P are computed, what is rounded, and the bytes from memory.
///
/// Equation, shapes: those of `fused`, without T and P.
/// Thread mapping: cluster (x, h, b) walks over the chunks of a head with 128 columns of Dv. In a block that walks,
/// warpgroup 0 loads and stores, warpgroup 1 is the chain, and of the other three only one thread works: it passes T
/// and P on. In block 2 one thread loads pairs of Q and K, and warpgroups 1 to 4 compute.
/// Synchronization: T and P of chunk n lie in slot n % 4 of all three blocks: in block 2 they wait there for the push.
/// They are there (`matrices_full`) when the bytes of a push have come, from whichever block. In a block that walks,
/// `slot_free` counts the warps of the chain, which have read a slot. A thread then sends a message to block 2, a push
/// of 16 bytes. In block 2 `slot_free` counts these messages, and the warpgroup waits for both before it stores again.
/// The message of a block also says that the push to this block is over, so nothing else guards what a push reads.
/// Start and end: as in `cluster`.
/// Resources: at Dk = 128 a block that walks needs two tiles of Q, K and V, T and P of four chunks and a tile of
/// outputs. Block 2 needs more: three pairs of Q and K, T and P of four chunks, and 10 KB per warpgroup for the
/// inverse. That is 216 KB of shared memory, which all three get. Registers per thread: 64 for loads and stores, 224
/// for the chain, 112 for T and P, and 24 for the others.
/// Work, bytes: as `cluster`.
/// Bound by: the chain.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: it takes three multiprocessors for what `cluster` does with two, so `cluster` is faster with many heads.
/// Of 132 multiprocessors, clusters of three can use only 117. In one of the two blocks, the first chunk waits for two
/// pushes. With Dv <= 64 the second block's walk is wasted.
/// Sources: as `cluster`.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/cluster_memory.cuh"
#include "05_deltanet_wy/chunk/pass_matrices_on.cuh"
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

constexpr int kBlockThreads = 5 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 64;  // of them

constexpr int kComputer = kWalking;  // the rank of the block that computes T and P

template <class Shape>
using Memory = ClusterMemory<Shape, ThirdBlock>;

/// Grid (3 blocks for each 128 columns of Dv; H; B), in clusters of three along x.
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    three_blocks_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int rank = int(cluster_rank());
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = (int(blockIdx.x) / (kWalking + 1) * kWalking + rank) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  const Memory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};
  ClusterBarriers& barriers = memory.barriers();
  auto &k_full = barriers.k_full, &q_full = barriers.q_full, &empty = barriers.empty;
  auto &v_full = barriers.v_full, &v_empty = barriers.v_empty;

  const int group = int(threadIdx.x) / kWarpgroup;
  if (threadIdx.x == 0) barriers.init(rank == kComputer ? 1 : 4);
  cluster_sync();

  if (rank == kComputer) {
    if (group == 0) {
      decrease_registers<24>();
      if (threadIdx.x == 0) load_pairs(a, maps, memory, 0);
    } else {
      increase_registers<112>();
      compute_shared_matrices(a, memory, 0, group - 1);
    }
  } else if (group == 0) {
    decrease_registers<64>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      auto ring = Ring<kClusterStages>::producer();
      auto v_ring = Ring<kClusterStages>::producer();
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
        barriers.matrices_full[n % kGroups].arrive_expect(Memory<Shape>::Slot::kBytes);
        if (t + kChunk < a.L) load_values(t + kChunk);
      }
    } else if (thread == 32) {
      auto read_ring = Ring<kGroups>::consumer();
      for (int n = kGroups; n * kChunk < a.L; ++n) {
        read_ring.wait(barriers.slot_free);
        push_shared(barriers.inbox, barriers.outbox, sizeof(barriers.inbox), barriers.slot_free[read_ring.stage()],
                    kComputer);
        read_ring.advance();
      }
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
  } else if (group > 1) {
    decrease_registers<24>();
    if (threadIdx.x == 2 * kWarpgroup) pass_matrices_on(memory, a.L, rank);
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
      const auto matrices = memory.matrices(matrix_ring.stage());
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
      if (lane_index() == 0 && next_in_slot * kChunk < a.L) barriers.slot_free[matrix_ring.stage()].arrive();
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

void three_blocks(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    dim3 grid = grid_of<Shape>(extents_of(a), 1);
    grid.x = (grid.x + kWalking - 1) / kWalking * (kWalking + 1);
    LaunchConfig config(grid, kBlockThreads, std::size_t(Memory<Shape>::kBytes));
    config.cluster = kWalking + 1;
    launch(three_blocks_kernel<Shape>, config, a, chunk_maps(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::delta_rule
