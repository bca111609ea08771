/// @file
/// `cluster`: the decays come with T and P.
///
/// Idea: the kernel of `delta_rule` in which the two blocks of a head share the work for T and P, with gates. The
/// warpgroups that compute T and P of a chunk also compute its two rows of decays, exp(b) and exp(b_e - b), once for
/// both blocks, and push them with T and P in the same message. So the chain loads decays from shared memory, and no
/// exponential is in its way. It applies them in the gaps of the chain:
///
///     the chain waits for | the threads meanwhile
///     v_new               | load V; S *= exp(b_e)
///     S                   | Q S *= exp(b)
///     K S of the next     | put O; load exp(b)
///
/// Improves on: `segments` takes T, P and decays through memory, and has a kernel before the walk.
/// Unchanged: what is rounded, the roles of the warps and their barriers. The sums of K S begin with zeros, and V lies
/// in registers, in bf16, until it is subtracted. T and P are waited for a little later: while K S of their chunk is
/// computed.
///
/// **Segments.** A strong gate makes what follows it independent of what was before. So where few heads leave
/// multiprocessors idle, the kernel may cut sequences into segments, whose clusters begin with zeros a few chunks
/// earlier (chunk/zero_starts.cuh, zero_starts.cuh). Each cluster decides for its segment whether the gates allow that.
/// If not, it has nothing to do, and the kernels that follow walk the whole head (common/device/walked_heads.hpp).
///
/// Equation: that of `tensor_core`.
/// Shapes: those of `tensor_core`; g [B, H, L] fp32 in device memory.
/// Thread mapping: that of delta_rule's `cluster`. Each of the four warps that compute T and P of a chunk sums the
/// gates of the whole chunk for itself, so that no barrier is needed for that (gated_matrices.cuh).
/// Synchronization: that of delta_rule's `cluster`.
/// Resources: that stage's, and 1 KB per slot for decays and 1 KB per warpgroup for sums of gates: 227 KB of shared
/// memory at Dk = 128.
/// Work: that of delta_rule's `cluster`, 6 Dv + Dk Dv / 32 multiplications per position in the chain, and about 20
/// exponentials per position and 128 columns.
/// Bytes: those of delta_rule's `cluster`, and g four times per 128 columns.
/// Bound by: the instructions of the chain.
/// Requires: what delta_rule's `cluster` requires, and keys that are normalised already.
/// Weakness: the chain's threads have more to do while K S is computed than that product takes.
/// Sources: those of delta_rule's `cluster` and of `tensor_core`.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/zero_starts.cuh"
#include "05_deltanet_wy/gated_delta_rule/dispatch/zero_starts.hpp"
#include "05_deltanet_wy/gated_delta_rule/gated_matrices.cuh"
#include "common/device/cluster.cuh"
#include "common/device/early_start.cuh"
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

constexpr int kBlockThreads = 4 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 64;  // of them

/// Grid (tiles of 64 columns of Dv, rounded up to an even number, of all segments; H; B), in clusters of two along x.
/// @tparam kFromZeros whether there may be several segments, of `length` positions
template <class Shape, bool kFromZeros>
__global__ void __launch_bounds__(kBlockThreads, 1)
    cluster_kernel(Bf16Arguments all, const __grid_constant__ ChunkMaps maps, WalkedHeads heads, int length) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  int tile = int(blockIdx.x), first = 0, begin = 0;  // where the walk starts, and its outputs
  [[maybe_unused]] Bf16Arguments part;
  if constexpr (kFromZeros) {
    let_next_kernel_start();
    const int tiles = int(gridDim.x) / heads.segments, segment = tile / tiles;
    tile %= tiles;
    begin = segment * length;
    // The first segment asks for the second one: where that may not start, the head is another kernel's.
    const int start = heads.segments == 1 ? 0 : zero_start<kBlockThreads>(all, b, h, max(begin, length));
    if (threadIdx.x == 0 && tile == 0) {
      store_global(heads.walked + (std::int64_t(b) * all.H + h) * heads.segments + segment, int(start != kNoWarmUp));
    }
    if (start == kNoWarmUp) return;
    if (segment > 0) first = start;
    part = part_of(all, first, min(begin + length, all.L));
  }
  const Bf16Arguments& a = *(kFromZeros ? &part : &all);  // what is walked
  const int first_column = tile * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
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
                    {.column = first_column, .position = first + t, .head = h, .batch = b}, Eviction::kFirst);
        v_ring.advance();
      };
      load_values(0);
      for (int n = 0, t = 0; t < a.L; ++n, t += kChunk) {
        const TileOrigin origin{.position = first + t, .head = h, .batch = b};
        ring.wait(empty);
        k_full[ring.stage()].arrive_expect(memory.kKeyBytes);
        load_panels(memory.K(ring.stage()), maps.k, k_full[ring.stage()], origin);
        q_full[ring.stage()].arrive_expect(memory.kKeyBytes);
        load_panels(memory.Q(ring.stage()), maps.q, q_full[ring.stage()], origin);
        ring.advance();
        if (rank_of(n) != rank) barriers.matrices_full[n % kGroups].arrive_expect(GatedMatrices::kBytes);
        if (t + kChunk < a.L) load_values(t + kChunk);
        // T and P of chunk n + 2 lie where those of n - 2 were, which the chain has just read.
        if (n + 2 >= kGroups && t + 2 * kChunk < a.L) pass_place_on(barriers, read_ring, n + 2, rank);
      }
    } else if (thread == 32) {
      load_pairs(a, maps, memory, rank, first);
    } else if (thread >= 64) {
      auto output_ring = Ring<1>::consumer();
      const auto pass_on = [&] {
        __syncwarp();
        if (lane_index() == 0) barriers.output_empty.arrive();
      };
      for (int t = 0; t < a.L; t += kChunk) {
        output_ring.wait(&barriers.output_full);
        if (first + t < begin) {
          pass_on();
        } else {
          store_tile_by<kStoreThreads, Eviction::kFirst>(thread - 64, a.o.row(b, h, t) + first_column, a.o.stride_l,
                                                         a.L - t, columns, memory.O(), pass_on);
        }
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
      const GatedMatrices matrices = memory.matrices(matrix_ring.stage());
      round_columns(factor, residual);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, matrices.T);
      wgmma_commit();
      start_half_of_output<Shape::kDk>(O, s, memory.Q(ring.stage()), 1);
      wgmma_commit();
      const float whole = matrices.from_start[kChunk - 1];
#pragma unroll
      for (float& element : S) element *= whole;
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      const ColumnDecays to_end(matrices.to_end);
      round_columns(factor, v_new);
      to_end.multiply(v_new);
      round_columns(to_state, v_new);
      wgmma_fence(S, to_state, residual);
      start_state_update<Shape::kDk>(S, to_state, memory.K(ring.stage()));
      wgmma_commit();
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
      if (lane_index() == 0 && next_in_slot * kChunk < a.L) {
        const bool is_own = rank_of(next_in_slot) == rank;
        (is_own ? barriers.slot_free[group_of(next_in_slot)] : barriers.slot_read).arrive();
      }
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

void cluster(const Bf16Arguments& a, const LaunchPlan& plan, const WalkedHeads& heads) {
  const auto start = [&]<class Shape>(Shape) {
    LaunchConfig config =
        launch_in_pairs<Shape>(extents_of(a), kBlockThreads, std::size_t(ClusterMemory<Shape>::kBytes));
    config.grid.x *= unsigned(plan.segments);
    launch(heads.walked ? cluster_kernel<Shape, true> : cluster_kernel<Shape, false>, config, a, chunk_maps(a), heads,
           plan.length);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

void cluster(const Bf16Arguments& a) {
  cluster(a, make_launch_plan(a.L, kWarpgroupColumns, 1), {});
}

}  // namespace tutorial::gated_delta_rule
