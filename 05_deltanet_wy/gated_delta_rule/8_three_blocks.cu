/// @file
/// `three_blocks`: delta_rule's stage of this name, with gates.
///
/// Idea: with 32 heads `cluster` leaves half of the multiprocessors idle. In each of the others the chain and the warps
/// for T and P share the schedulers, and gates give both more instructions. In a cluster of three blocks, blocks 0 and
/// 1 walk, and block 2 computes T, P and decays of all chunks. Pushes go as in delta_rule's `three_blocks`: block 2
/// pushes what belongs to a chunk to one of the two blocks, in turn, and this block passes it on to the other one.
///
/// Grows out of: 7_cluster.cu
/// Improves on: in `cluster` the chain waits for tensor cores and issue slots that T, P and decays take.
/// Unchanged: the chain, what lies in a slot, how it is computed, what is rounded, and the bytes from memory.
///
/// Equation, shapes: those of `cluster`.
/// Thread mapping, synchronization, start and end: those of delta_rule's `three_blocks`.
/// Resources: block 2 has three pairs of Q and K, four slots of 21 KB, and 11 KB for each of its four warpgroups: 225
/// KB of shared memory at Dk = 128, which all three blocks get. Registers per thread: as in delta_rule's
/// `three_blocks`, but 240 for the chain.
/// Work, bytes: as `cluster`.
/// Bound by: the chain.
/// Requires: what `cluster` requires.
/// Weakness: that of delta_rule's `three_blocks`: with many heads `cluster` is faster.
/// Sources: as `cluster`.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/delta_rule/pass_factors_on.cuh"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/cluster.cuh"
#include "common/device/cluster.cuh"
#include "common/device/eviction.hpp"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gated_delta_rule {
namespace {

using namespace tile;
using namespace delta_rule;  // products of a chunk

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
      compute_shared_factors(a, memory, 0, group - 1);
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
        barriers.factors_full[n % kGroups].arrive_expect(GatedFactors::kBytes);
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
    if (threadIdx.x == 2 * kWarpgroup) pass_factors_on(memory, a.L, rank);
  } else {
    increase_registers<240>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kClusterStages>::consumer();
    auto v_ring = Ring<kClusterStages>::consumer();  // one chunk ahead of the others
    auto factor_ring = Ring<kGroups>::consumer();
    auto output_ring = Ring<1>::producer();
    int next_in_slot = kGroups;  // the chunk whose T and P replace those of this one

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, v_new, O;
    ValueFragments values;
    WarpgroupFragments factor, to_state;
    const int unit = first_unit_of_columns();
    // values = V of the next chunk, in bf16.
    const auto load_values = [&] {
      v_ring.wait(v_full);
      const ValuePanel V = memory.V(v_ring.stage());
#pragma unroll
      for (int t = 0; t < kChunk; t += 16) ldmatrix_x4_trans(values[t / 16], V.data + V.advance(unit, t, 0));
      __syncwarp();  // all lanes have read their part of V
      if (lane_index() == 0) v_empty[v_ring.stage()].arrive();
      v_ring.advance();
    };
    // residual = K S of the chunk of ring.
    const auto start_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      ring.wait(k_full);
      wgmma_fence(residual, s);
      start_output_from_state<Shape::kDk>(residual, s, memory.K(ring.stage()));  // K in place of Q
      wgmma_commit();
    };
    // O = half of Q S, of the chunk of ring.
    const auto start_output = [&] {
      ring.wait(q_full);
      wgmma_fence(O, s);
      start_half_of_output<Shape::kDk>(O, s, memory.Q(ring.stage()), 0);
      wgmma_commit();
    };
    // residual = D K S - V, whose decays come with the factors.
    const auto finish_residual = [&] {
      factor_ring.wait_cluster(barriers.factors_full);
      ColumnDecays from_start(memory.factors(factor_ring.stage()).from_start);
      wgmma_wait<1>(residual);
      from_start.multiply(residual);
#pragma unroll
      for (int i = 0; i < kChunk / 2; i += 2) {
        const float2 two = unpack(values[i / 8][i / 2 % 4]);
        residual[i] -= two.x;
        residual[i + 1] -= two.y;
      }
    };
    // Starts from the residual of a chunk and half of its outputs: computes its v_new, updates S, computes the rest of
    // its outputs, and both for the next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const GatedFactors factors = memory.factors(factor_ring.stage());
      round_columns(factor, residual);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, factors.T);
      wgmma_commit();
      start_half_of_output<Shape::kDk>(O, s, memory.Q(ring.stage()), 1);
      wgmma_commit();
      const float whole = factors.from_start[kChunk - 1];
#pragma unroll
      for (float& element : S) element *= whole;
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      const ColumnDecays to_end(factors.to_end);
      round_columns(factor, v_new);
      to_end.multiply(v_new);
      round_columns(to_state, v_new);
      wgmma_fence(S, to_state, residual);
      start_state_update<Shape::kDk>(S, to_state, memory.K(ring.stage()));
      wgmma_commit();
      const ColumnDecays from_start(factors.from_start);
      wgmma_wait<1>(O);
      from_start.multiply(O);
      wgmma_fence(O, factor);
      start_output_from_values(O, factor, factors.P);
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
      factor_ring.advance();
      output_ring.wait(&barriers.output_empty);
      put_output(memory.O(), O, a.scale, unit);
      __syncwarp();  // all lanes have put O and read the decays
      if (lane_index() == 0) barriers.output_full.arrive();
      if (lane_index() == 0 && next_in_slot * kChunk < a.L) barriers.slot_free[next_in_slot % kGroups].arrive();
      ++next_in_slot;
      output_ring.advance();
      if constexpr (HasNext::value) {
        start_output();
        finish_residual();
      }
    };

    load_values();
    start_state_product();
    start_output();
    finish_residual();
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

}  // namespace tutorial::gated_delta_rule
