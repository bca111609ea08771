/// @file
/// `three_blocks`: delta_rule's stage of this name, with gates: the decays come with T and P.
///
/// Idea: the factors of the gates fit into the gaps of the chain, in which its threads wait for products. Only two of
/// them are in line, because the next product waits for them: those of K S, and those of v_new on its way into the
/// state. The warpgroups that compute T and P of a chunk in the third block also compute its two rows of decays, exp(b)
/// and exp(b_e - b), once for both blocks that walk, and push them with T and P in the same message. So the chain loads
/// decays from shared memory, and no exponential is in its way:
///
///     the chain waits for | the threads meanwhile
///     v_new               | load V; S *= exp(b_e)
///     S                   | Q S *= exp(b)
///     K S of the next     | put O; load exp(b)
///
/// Grows out of: 05_deltanet_wy/delta_rule/12_three_blocks.cu
/// Improves on: in `tensor_core` the same warps load, multiply and store, one after the other; T, P and decays pass
/// through memory.
/// Unchanged: the roles of the blocks and warps and their barriers; what is rounded. The sums of K S begin with zeros,
/// and V lies in registers, in bf16, until it is subtracted. T and P are waited for a little later: while K S of their
/// chunk is computed.
///
/// Equation: that of `tensor_core`.
/// Shapes: those of `tensor_core`; g [B, H, L] fp32 in device memory.
/// Thread mapping, synchronization, start and end: those of delta_rule's `three_blocks`. Each of the four warps that
/// compute T and P of a chunk sums the gates of the whole chunk for itself, so that no barrier is needed for that
/// (gated_matrices.cuh).
/// Resources: block 2 has three pairs of Q and K, four slots of 21 KB, and 11 KB for each of its four warpgroups: 225
/// KB of shared memory at Dk = 128, which all three blocks get. Registers per thread: as in delta_rule's
/// `three_blocks`, but 240 for the chain.
/// Work: that of delta_rule's stage, 6 Dv + Dk Dv / 32 multiplications per position in the chain, and about 20
/// exponentials per position and 128 columns.
/// Bytes: those of delta_rule's stage, and g four times per 128 columns.
/// Bound by: the chain.
/// Requires: what delta_rule's stage requires, and keys that are normalised already.
/// Weakness: that of delta_rule's `three_blocks`: with many heads clusters of two blocks are faster.
/// Sources: those of delta_rule's stage and of `tensor_core`.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/pass_matrices_on.cuh"
#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/gated_matrices.cuh"
#include "common/device/cluster.cuh"
#include "common/device/eviction.hpp"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/device/registers.cuh"
#include "common/device/walked_heads.cuh"
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
  if (has_been_walked(a.heads, b * a.H + h)) return;
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
    increase_registers<240>();
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
    // residual = D K S - V, whose decays come with the matrices.
    const auto finish_residual = [&] {
      matrix_ring.wait_cluster(barriers.matrices_full);
      ColumnDecays from_start(memory.matrices(matrix_ring.stage()).from_start);
      wgmma_wait<1>(residual);
      // The next product with T waits for this factor.
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
      const auto matrices = memory.matrices(matrix_ring.stage());
      round_columns(factor, residual);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, matrices.T);
      wgmma_commit();
      start_half_of_output<Shape::kDk>(O, s, memory.Q(ring.stage()), 1);
      wgmma_commit();
      // S fades while v_new is computed.
      const float whole = matrices.from_start[kChunk - 1];
#pragma unroll
      for (float& element : S) element *= whole;
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      const ColumnDecays to_end(matrices.to_end);
      round_columns(factor, v_new);
      // The update of S waits for this factor.
      to_end.multiply(v_new);
      round_columns(to_state, v_new);
      wgmma_fence(S, to_state, residual);
      start_state_update<Shape::kDk>(S, to_state, memory.K(ring.stage()));
      wgmma_commit();
      // Q S decays while S is updated.
      const ColumnDecays from_start(matrices.from_start);
      wgmma_wait<1>(O);
      from_start.multiply(O);
      wgmma_fence(O, factor);
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
      matrix_ring.advance();
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
