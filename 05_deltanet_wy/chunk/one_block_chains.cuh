#pragma once
/// @file
/// The two chains of `one_block`, and its kernel; dispatch/one_block.cu of delta_rule describes it. one_block.cuh has the
/// other warps.
///
/// What a chain does with decays is a type, `Decays::Chain`:
///
///     begin()             a chunk begins, and its decays are there; returns whether it is strong, or the next one is
///     multiply_state()    S times what it takes before the chunk
///     load_values()       the sums of the residual begin with -V, times decays
///     output_factors()    what outputs are multiplied by: a number, or a function as put_output() takes it
///     end()               the state after the last chunk
///
/// Strong chunks need more. They, and those before them, have code of their own, out of the way of the others:
///
///     keep()              S times its decay, after S has been rounded
///     finish_residual()   of K S - V
///     finish_output()     of Q S
///     finish_values()     of v_new on its way into the state. Otherwise it is the same v_new as that of P v_new

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/one_block.cuh"
#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

/// A chain walks over the chunks with its 64 columns.
template <class Shape, class Decays, class Heads>
__device__ __forceinline__ void walk_chain(const typename Decays::Arguments& a, const Heads& heads,
                                           const OneBlockMemory<Shape, Decays>& memory,
                                           OneBlockBarriers<Decays>& barriers, int chain) {
  using namespace tile;
  const int b = heads.batch(a.B), h = heads.head();
  const int column = (int(blockIdx.x) * kChains + chain) * Shape::kDv, columns = min(Shape::kDv, a.Dv - column);
  WarpgroupState<Shape::kDk> S;
  heads.template load_start<Shape::kDk>(S, a, column, columns);
  auto ring = Ring<kPairs>::consumer();
  auto v_ring = Ring<kPlaces>::consumer();
  auto matrix_ring = Ring<kPlaces>::consumer();
  auto P_ring = Ring<kPlaces>::producer();    // one chunk ahead
  auto pair_ring = Ring<kPairs>::consumer();  // and so is this one
  const int unit = first_unit_of_columns();
  typename Decays::Chain decays;
  WarpgroupScores Q_K;
  // Q K^T of the chunk that pair_ring points to.
  const auto start_queries = [&] {
    pair_ring.wait(barriers.full);
    wgmma_fence(Q_K);
    start_scores(Q_K, memory.Q(pair_ring.stage()), memory.K(pair_ring.stage()));
    wgmma_commit();
  };
  // may_be_strong: std::true_type or std::false_type: what the chunk of these scores may be
  const auto put_scores = [&](auto may_be_strong) {
    P_ring.wait(barriers.matrices_empty);
    if constexpr (may_be_strong.value) Decays::multiply_pairs(Q_K, memory.decays(pair_ring.stage()));
    store_masked_scores(memory.matrices(P_ring.stage()).P, Q_K);
    fence_async_proxy();
    __syncwarp();
    if (lane_index() == 0) barriers.P_full[P_ring.stage()].arrive();
  };
  if (chain == 0) {
    start_queries();
    wgmma_wait<0>(Q_K);
    put_scores(std::bool_constant<Decays::kExist>());
  }
  bool has_scores = chain == 1;  // this chain computes P of the next chunk
  const auto walk = [&](int t, auto may_be_strong) {
    RoundedState<Shape::kDk> s;
    WarpgroupColumns sums;  // the residual, later the outputs: two arrays would take 32 more registers
    WarpgroupColumns v_new;
    WarpgroupFragments factor;
    v_ring.wait(barriers.v_full);
    const ValuePanel V = memory.V(v_ring.stage(), chain);
    decays.load_values(sums, V, unit);
    decays.multiply_state(S);
    round_state<Shape::kDk>(s, S);
    if constexpr (may_be_strong.value) decays.keep(S);
    wgmma_fence(sums, s);
    start_residual<Shape::kDk>(sums, s, memory.K(ring.stage()));
    wgmma_commit();
    wgmma_wait<0>(sums);
    if constexpr (may_be_strong.value) decays.finish_residual(sums, V, unit);
    round_columns(factor, sums);
    wgmma_fence(sums, s, factor);
    start_output_from_state<Shape::kDk>(sums, s, memory.Q(ring.stage()));
    wgmma_commit();
    wgmma_wait<0>(sums);
    if constexpr (may_be_strong.value) decays.finish_output(sums);
    const ChunkMatrices matrices = memory.matrices(matrix_ring.stage());
    matrix_ring.wait(barriers.T_full);
    wgmma_fence(v_new, factor);
    start_new_values(v_new, factor, matrices.T);
    wgmma_commit();
    wgmma_wait<0>(v_new);
    round_columns(factor, v_new);
    matrix_ring.wait(barriers.P_full);
    if constexpr (may_be_strong.value) {
      wgmma_fence(sums, factor);
      start_output_from_values(sums, factor, matrices.P);
      wgmma_commit();
      wgmma_wait<0>(sums);
      decays.finish_values(v_new);
      round_columns(factor, v_new);
      wgmma_fence(S, factor);
      start_state_update<Shape::kDk>(S, factor, memory.K(ring.stage()));
      wgmma_commit();
    } else {
      wgmma_fence(S, sums, factor);
      start_state_update<Shape::kDk>(S, factor, memory.K(ring.stage()));
      start_output_from_values(sums, factor, matrices.P);
      wgmma_commit();
    }
    if (has_scores && t + kChunk < a.L) {
      start_queries();
      wgmma_wait<0>(S, sums, Q_K);
      put_scores(may_be_strong);
    } else {
      wgmma_wait<0>(S, sums);
    }
    if (lane_index() == 0) barriers.matrices_empty[matrix_ring.stage()].arrive();
    __syncwarp();  // all lanes have read their part of V
    put_output(V, sums, decays.output_factors(a.scale), unit);
    fence_async_proxy();
    __syncwarp();  // and their decays
    if (lane_index() == 0) {
      barriers.output_full[v_ring.stage()].arrive();
      barriers.empty[ring.stage()].arrive();
    }
  };
  for (int t = 0; t < a.L; t += kChunk) {
    pair_ring.advance();
    P_ring.advance();
    ring.wait(barriers.full);
    if (decays.begin(memory.decays(ring.stage()))) {
      walk(t, std::bool_constant<Decays::kExist>());
    } else {
      walk(t, std::false_type());
    }
    has_scores = !has_scores;
    matrix_ring.advance();
    v_ring.advance();
    ring.advance();
  }
  decays.end(S);
  if (a.final_state.data) {
    store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

inline constexpr int kOneBlockThreads = 4 * tile::kWarpgroup;  ///< of a block

/// Grid: that of `heads`, with tiles of 128 columns of Dv.
template <class Shape, class Decays, class Heads>
__global__ void __launch_bounds__(kOneBlockThreads, 1)
    one_block_kernel(typename Decays::Arguments a, const __grid_constant__ tile::ChunkMaps maps,
                     const __grid_constant__ TensorMap o, Heads heads) {
  using namespace tile;
  if (!heads.begin(a, kChains * Shape::kDv)) return;
  __shared__ OneBlockBarriers<Decays> barriers;
  __shared__ Barrier arrived[Heads::kArePacked ? 2 : 1];  // of Q and K, and of V
  const OneBlockMemory<Shape, Decays> memory{dynamic_shared<unsigned char, kTileAlignment>()};

  if (threadIdx.x == 0) {
    if constexpr (Heads::kArePacked) arrived[0].init(1), arrived[1].init(1);
    barriers.init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<64>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < kLoadingThreads<Decays, Heads>) {
      load_pairs(a, heads, maps, memory, barriers, arrived);
    } else if (Heads::kArePacked ? thread / 32 == 1 : thread == 32) {
      move_values(a, heads, maps, o, memory, barriers, arrived + Heads::kArePacked);
    } else if (thread >= 64) {
      invert_diagonals(a, heads, memory, barriers);
    }
  } else if (group == 1) {
    decrease_registers<96>();
    compute_inverses(a, heads, memory, barriers);
  } else {
    increase_registers<176>();
    // The shuffle tells the compiler that it is the same in all lanes.
    walk_chain(a, heads, memory, barriers, __shfl_sync(kAllLanes, group - 2, 0));
  }
}

/// Launches it. Requires: what the operator's `one_block` requires, and up to 65535 entries.
/// @tparam Shape with a width of keys that holds Dk
/// @param entries batch entries, or those of all packed sequences
template <class Shape, class Decays, class Heads>
void start_one_block_of(const typename Decays::Arguments& a, int entries, const Heads& heads) {
  const dim3 grid((unsigned(a.Dv) - 1) / (kChains * Shape::kDv) + 1, unsigned(a.H), unsigned(entries));
  launch(one_block_kernel<Shape, Decays, Heads>,
         {grid, kOneBlockThreads, std::size_t(OneBlockMemory<Shape, Decays>::kBytes)}, a, tile::chunk_maps(a),
         tile::output_map(a), heads);
}

/// The same with the smallest shape.
template <class Decays, class Heads = BatchHeads>
void start_one_block(const typename Decays::Arguments& a, int entries, const Heads& heads = {}) {
  if (a.Dk <= 64) return start_one_block_of<tile::PanelShape<64, 64>, Decays>(a, entries, heads);
  start_one_block_of<tile::PanelShape<128, 64>, Decays>(a, entries, heads);
}

}  // namespace tutorial::delta_rule
