#pragma once
/// @file
/// The two walks of `--backward` by warpgroups, without gates or with one per position, in segments of the sequence
/// that are walked at once. A block has 64 columns of Dv of a segment, in one of the two directions, and its warps are
/// those of warpgroup_walks.cuh.
///
/// With gates, D_k, D_q and D_e are the rows of a chunk's decays (gated_delta_rule/prepare_gated.hpp), and without them 1:
///
///     from the beginning   -Res^T = (S^T K^T) D_k - V^T          v_new^T = (-Res^T) (-T)^T
///                          S^T = exp(b_e) S^T + (v_new^T D_e) K
///     from the end         X^T = (dS^T K^T) D_e + dO^T P         -dV^T = X^T (-T)
///                          dS^T = exp(b_e) dS^T + (dO^T D_q) Q + (-dV^T D_k) K
///
/// Three of the six factors wait for nothing: the two exp(b_e) and D_q, which fit under the product with K. D_k dS^T K^T
/// and the like cannot begin with -V^T or dO^T P as their sums, because these are not decayed: so they are added
/// afterwards. Where a product goes into a state decayed, but leaves the walk as it is, the decayed numbers are rounded
/// once more, from fp32. A whole warp loads decays, one chunk ahead of the bulk copies.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/walk_decays.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/walk_segments.cuh"
#include "05_deltanet_wy/delta_rule_backward/warpgroup_walks.cuh"

namespace tutorial::delta_rule {
namespace {

/// Whether a walk leaves its state around chunk n: that before chunks 0, kEvery, ..., or that after chunks kEvery - 1,
/// 2 kEvery - 1, ... and the last one.
template <int kEvery>
__device__ __forceinline__ bool leaves_state(int n, int N, bool is_reversed) {
  return is_reversed ? n % kEvery == kEvery - 1 || n == N - 1 : n % kEvery == 0;
}

/// The walk from the beginning, by a warpgroup.
/// @tparam kIsMap whether only the last state counts
/// @param walk Walk::transition: the values are the columns of -K, with which Psi is computed, and the decays before
/// @param all_decays those of the chunks in shared memory; null without gates
/// @return the product of the decays of all chunks
template <class Shape, int kEvery, bool kHasGates, bool kIsMap>
__device__ __forceinline__ float walk_forwards(WarpgroupState<Shape::kDk>& S, const ChunksOfWalk& chunks, Walk walk,
                                               int tile, unsigned char* memory, const StoredTiles<Shape>& stored,
                                               const float* all_decays, WalkBarriers& barriers) {
  const bool is_transition = kIsMap && walk == Walk::transition;
  RoundedState<Shape::kDk> s;
  WarpgroupColumns residual, values, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  float decay = 1;
  auto ring = Ring<kPipelineDepth>::consumer();
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int i = chunks.begin(); i < chunks.count; ++i) {
    const bool is_left = !kIsMap && i >= 0;
    const WalkTiles<Shape> tiles(memory + ring.stage() * WalkTiles<Shape>::kBytes);
    const float* decays = all_decays + ring.stage() * kDecays;
    const ValuePanel V{is_transition ? tiles.K.data + tile * tiles.K.kPanelElements : tiles.V.data};
    const std::uint32_t sign = is_transition ? kPlus : kMinus;
    round_state<Shape::kDk>(s, S);
    ring.wait(barriers.full);
    if constexpr (!kHasGates) load_signed_values(residual, V, unit, sign);
    const bool alike = is_marked(tiles.T_high);
    wgmma_fence(residual, s);
    if constexpr (kHasGates) {
      start_output_from_state<Shape::kDk>(residual, s, tiles.K);  // K in place of Q
    } else {
      start_residual<Shape::kDk>(residual, s, tiles.K);
    }
    wgmma_commit();
    if constexpr (kHasGates) load_signed_values(values, V, unit, sign);
    if (is_left && leaves_state<kEvery>(chunks[i], 0, false)) {
      state_ring.wait(barriers.state_empty);
      put_fragments(stored.state, s);
      pass_to_copies(barriers.state_full[0]);
      state_ring.advance();
    }
    const float whole = kHasGates ? decays[kOfQueries * kChunk + kChunk - 1] : 1;
    if constexpr (kHasGates) {
      wgmma_wait<1>(S);  // done already; without it the compiler would wait for the product with K before it touches S
      multiply(S, whole);
    }
    wgmma_wait<0>(residual);
    if constexpr (kHasGates) {
      if (is_transition) {
        add_and_decay(residual, values, decay, decays + kOfKeys * kChunk);
      } else {
        decay_and_add(residual, values, decays + kOfKeys * kChunk);
      }
      decay *= whole;
    }

    round_columns(factor, residual);
    wgmma_fence(v_new, factor);
    start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(v_new);

    if constexpr (kHasGates) {
      round_decayed(factor, v_new, decays + kToEnd * kChunk);
    } else {
      round_columns(factor, v_new);
    }
    wgmma_fence(S, factor);
    start_state_update<Shape::kDk>(S, factor, tiles.K);
    wgmma_commit();
    if (is_left) {
      rows_ring.wait(barriers.rows_empty);
      put_output(stored.rows, v_new, 1);
      if (threadIdx.x == kWarpgroup) barriers.errors_follow = alike;
      pass_to_copies(barriers.rows_full[0]);
      rows_ring.advance();
    } else {
      end_reads();
    }
    wgmma_wait<0>(S);
    if (alike) {
      if constexpr (kHasGates) {
        round_errors_of_decayed(factor, v_new, decays + kToEnd * kChunk);
        keep_errors(v_new);
      } else {
        keep_errors(v_new);
        round_columns(factor, v_new);
      }
      wgmma_fence(S, factor);
      start_state_update<Shape::kDk>(S, factor, tiles.K);
      wgmma_commit();
      wgmma_wait<0>(S);
      if (is_left) {
        rows_ring.wait(barriers.rows_empty);
        put_output(stored.rows, v_new, 1);
        pass_to_copies(barriers.rows_full[0]);
        rows_ring.advance();
      } else {
        end_reads();
      }
    }
    // V may be filled again: between the ordinary loads that have read it and this arrival is a fence_async_proxy(),
    // that of pass_to_copies() or end_reads().
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
  }
  return decay;
}

/// The walk from the end, by a warpgroup. Its state is dS / scale.
/// @param scale multiplies dV on its way out
template <class Shape, int kEvery, bool kHasGates, bool kIsMap>
__device__ __forceinline__ void walk_backwards(WarpgroupState<Shape::kDk>& S, const ChunksOfWalk& chunks, int N,
                                               float scale, unsigned char* memory, const StoredTiles<Shape>& stored,
                                               const float* all_decays, WalkBarriers& barriers) {
  RoundedState<Shape::kDk> s;
  WarpgroupColumns X, from_scores, dV;  // dV with the opposite sign, divided by scale
  WarpgroupFragments factor, outputs;   // dO^T
  const int unit = first_unit_of_columns();
  auto ring = Ring<kPipelineDepth>::consumer();
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int i = chunks.begin(); i < chunks.count; ++i) {
    const bool is_left = !kIsMap && i >= 0;
    const WalkTiles<Shape> tiles(memory + ring.stage() * WalkTiles<Shape>::kBytes);
    const float* decays = all_decays + ring.stage() * kDecays;
    round_state<Shape::kDk>(s, S);
    ring.wait(barriers.full);
    const bool alike = is_marked(tiles.T_high);
    if constexpr (kHasGates) {
      wgmma_fence(X, s, from_scores);
      start_output_from_state<Shape::kDk>(X, s, tiles.K);  // K in place of Q
      start_transposed_scores(from_scores, tiles.V, tiles.P);
    } else {
      wgmma_fence(X, s, S);
      start_transposed_scores(X, tiles.V, tiles.P);
      start_residual<Shape::kDk>(X, s, tiles.K);
    }
    wgmma_commit();
    if constexpr (kHasGates) {
      const float whole = decays[kOfQueries * kChunk + kChunk - 1];
      wgmma_wait<1>(S);  // as in the other walk
      multiply(S, whole);
      load_decayed(outputs, tiles.V, unit, decays + kOfQueries * kChunk);
      wgmma_fence(S, outputs);
      start_state_update<Shape::kDk>(S, outputs, tiles.Q);
    } else {
      start_state_update<Shape::kDk>(S, tiles.V, tiles.Q);
    }
    wgmma_commit();
    if (is_left && leaves_state<kEvery>(chunks[i], N, true)) {
      state_ring.wait(barriers.state_empty);
      put_fragments(stored.state, s);
      pass_to_copies(barriers.state_full[0]);
      state_ring.advance();
    }
    if constexpr (kHasGates) {
      wgmma_wait<1>(X, from_scores);
      decay_and_add(X, from_scores, decays + kToEnd * kChunk);
    } else {
      wgmma_wait<1>(X);
    }
    if (alike) {
      wgmma_wait<0>(X, S);
      if constexpr (!kHasGates) {
        add_errors_of_scores(X, tiles, [](int, int) { return 1.0f; });
      } else if (const float whole = decays[kOfQueries * kChunk + kChunk - 1]; whole > kLeastWhole) {
        const float *of_queries = decays + kOfQueries * kChunk, *to_end = decays + kToEnd * kChunk;
        add_errors_of_scores(X, tiles, [&](int t, int i) { return of_queries[t] * to_end[i] / whole; });
      }
    }

    round_columns(factor, X);
    wgmma_fence(dV, factor);
    start_value_gradients(dV, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(S, dV);
    if (alike) add_errors_of_value_gradients(dV, X, tiles.T_high);

    if constexpr (kHasGates) {
      round_decayed(factor, dV, decays + kOfKeys * kChunk);
    } else {
      round_columns(factor, dV);
    }
    wgmma_fence(S, factor);
    start_state_update<Shape::kDk>(S, factor, tiles.K);
    wgmma_commit();
    if (is_left) {
      rows_ring.wait(barriers.rows_empty);
      put_output(stored.rows, dV, -scale);
      pass_to_copies(barriers.rows_full[0]);
      rows_ring.advance();
    } else {
      end_reads();
    }
    wgmma_wait<0>(S);
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();  // as in the other walk
    ring.advance();
  }
}

/// Starts to load chunk n of the block's head. Called by one thread. @param first the block's column of Dv
template <class Shape>
__device__ __forceinline__ void load_walk_chunk(const WalkTiles<Shape>& to, const WalkMaps& maps, Barrier& full, int n,
                                                int first, Walk walk) {
  const int h = int(blockIdx.y), b = int(blockIdx.z), t = n * kChunk;
  const bool is_reversed = walk == Walk::backwards;
  const int of_outputs = int(to.Q.kPanelBytes) * Shape::kDk / 64 + int(SquarePanel::kPanelBytes);
  const int of_values = walk == Walk::transition ? int(to.V.kPanelBytes) : 0;
  full.arrive_expect(unsigned(WalkTiles<Shape>::kBytes - (is_reversed ? 0 : of_outputs) - of_values));
  load_panels(to.K, maps.k, full, {.position = t, .head = h, .batch = b});
  load_tile(is_reversed ? maps.TP : maps.T, to.T_high.data, full,
            {.position = n * kPreparedRows, .head = h, .batch = b});
  if (walk != Walk::transition) {
    load_tile(is_reversed ? maps.d_o : maps.v, to.V.data, full,
              {.column = first, .position = t, .head = h, .batch = b});
  }
  if (is_reversed) load_panels(to.Q, maps.q, full, {.position = t, .head = h, .batch = b});
}

/// What the thread does that stores the states of a walk. @param tile,tiles the block's number among those of its head
template <int kEvery, class Shape>
__device__ __forceinline__ void store_states(const TensorMap& map, const StoredTiles<Shape>& stored,
                                             WalkBarriers& barriers, const ChunksOfWalk& chunks, int N, int tile,
                                             int tiles, bool is_reversed) {
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  auto ring = Ring<1>::consumer();
  for (int i = 0; i < chunks.count; ++i) {
    if (!leaves_state<kEvery>(chunks[i], N, is_reversed)) continue;
    ring.wait(barriers.state_full);
    const int row = (chunks[i] / kEvery * tiles + tile) * kColumns;
    for (int panel = 0; panel < Shape::kDk / 64; ++panel) {
      store_tile(map, stored.state.data + panel * stored.state.kPanelElements,
                 {.column = panel * 64, .position = row, .head = h, .batch = b});
    }
    commit_stores();
    wait_stores_read<0>();
    barriers.state_empty[0].arrive();
    ring.advance();
  }
}

/// May start early: what it does before it loads does not depend on the kernel before.
/// Grid (for each segment: tiles of 64 columns of Dv for each walk, and of Dk if kIsMap, H, B).
/// @tparam kIsMap whether the block computes what its segment does to a state, if anyone needs it
template <class Shape, int kEvery, bool kHasGates, bool kIsMap>
__global__ void __launch_bounds__(kWalkThreads, 1)
    segmented_walks_kernel(Bf16BackwardArguments g, const __grid_constant__ WalkMaps maps, const float* all_decays,
                           WalkSegments<Shape::kDk> segments) {
  let_next_kernel_start();
  __shared__ WalkBarriers barriers;
  const BlockOfWalk<Shape::kDk, kIsMap> at(segments, g.H);
  if (!at.is_needed) return;
  const ChunksOfWalk& chunks = at.chunks;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const StoredTiles<Shape> stored(memory + kPipelineDepth * WalkTiles<Shape>::kBytes);
  auto* decays = reinterpret_cast<float*>(memory + kWalkBytes<Shape>);
  if (threadIdx.x == 0) {
    for (Barrier& barrier : barriers.full) barrier.init(kHasGates ? 2 : 1);  // one for the bytes, one for the decays
    for (Barrier& barrier : barriers.empty) barrier.init(4);
    barriers.state_full[0].init(4), barriers.state_empty[0].init(1);
    barriers.rows_full[0].init(4), barriers.rows_empty[0].init(1);
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x >= kWarpgroup) {
    WarpgroupState<Shape::kDk> S;
    at.load_state(S, g, segments);
    if (at.is_reversed) {
      walk_backwards<Shape, kEvery, kHasGates, kIsMap>(S, chunks, segments.N, g.scale, memory, stored, decays,
                                                       barriers);
    } else {
      const float decay = walk_forwards<Shape, kEvery, kHasGates, kIsMap>(S, chunks, at.walk, at.tile, memory, stored,
                                                                          decays, barriers);
      if (kIsMap && kHasGates && at.walk == Walk::transition && at.tile == 0 && threadIdx.x == kWarpgroup) {
        store_global(segments.decays + std::int64_t(at.head) * (segments.count - 1) + at.segment, decay);
      }
    }
    at.store_state(S, g, segments);
    return;
  }
  if (threadIdx.x < (kHasGates ? 32 : 1)) {
    wait_for_previous_kernel();  // T, P and decays
    auto ring = Ring<kPipelineDepth>::producer();
    const auto load_chunks = [&](auto load_decays) {
      for (int i = chunks.begin(); i < chunks.count; ++i) {
        Barrier& full = barriers.full[ring.stage()];
        ring.wait(barriers.empty);
        if (threadIdx.x == 0) {
          load_walk_chunk(WalkTiles<Shape>(memory + ring.stage() * WalkTiles<Shape>::kBytes), maps, full, chunks[i],
                          at.first, at.walk);
        }
        load_decays(full);
        ring.advance();
      }
    };
    if constexpr (kHasGates) {
      WalkDecays next(all_decays + std::int64_t(at.head) * segments.N * kDecays, chunks[chunks.begin()], chunks.step,
                      segments.N);
      load_chunks([&](Barrier& full) {
        next.store(decays + ring.stage() * kDecays);
        __syncwarp();
        if (threadIdx.x == 0) full.arrive();
      });
    } else {
      load_chunks([](Barrier&) {});
    }
  } else if (threadIdx.x == 32) {
    store_states<kEvery>(at.is_reversed ? maps.dS : maps.S, stored, barriers, chunks, segments.N, at.tile,
                         segments.starts.tiles, at.is_reversed);
  } else if (threadIdx.x == 64) {
    store_rows(at.is_reversed ? maps.dv : maps.v_new, at.is_reversed ? nullptr : &maps.v_errors, stored, barriers,
               chunks, at.first);
  }
}

/// Starts both walks, behind the kernels for what segments start from if there are several.
/// @tparam kEvery chunks from one state that is left to the next
/// @param all_decays [B, H, N, kDecayRows, 64] @param bounds of chunks [B, H, N], which the kernel before has left;
/// both null without gates
template <int kEvery, bool kHasGates>
void start_segmented_walks(const Bf16BackwardArguments& g, const WalkMaps& maps, const float* all_decays,
                           const float* bounds, const BackwardSegments& cut) {
  const auto start = [&]<class Shape>(Shape) {
    constexpr int kDk = Shape::kDk;
    WalkSegments<kDk> segments = walk_segments<kDk>(g, cut, bounds);
    LaunchConfig config =
        walk_launch(g, kWalkBytes<Shape> + (kHasGates ? kPipelineDepth * kDecays * sizeof(float) : 0));
    start_maps<Shape, KeptWithOneGate<kDk>>(g, segments, kHasGates, config, [&](const LaunchConfig& of_maps) {
      launch(segmented_walks_kernel<Shape, kEvery, kHasGates, true>, of_maps, g, maps, all_decays, segments);
    });
    if (cut.count > 1) config.starts_early = true;
    config.grid.x *= unsigned(cut.count);
    launch(segmented_walks_kernel<Shape, kEvery, kHasGates, false>, config, g, maps, all_decays, segments);
  };
  g.Dk <= 64 ? start(PanelShape<64, kColumns>()) : start(PanelShape<128, kColumns>());
  end_part("walks");
}

}  // namespace
}  // namespace tutorial::delta_rule
