#pragma once
/// @file
/// The two walks of `--backward` by warpgroups, with a gate per row: delta_rule_backward/warpgroup_walks.cuh on rows
/// that contain their decays. Everything is transposed, and D = exp(b_end) multiplies the columns of a state:
///
///     from the beginning   -Res^T = S^T K+^T - V^T         v_new^T = (-Res^T) (-T)^T   S^T = S^T . D + v_new^T K-
///     from the end         X^T = dS^T K-^T + dO^T P        -dV^T = X^T (-T)
///                          dS^T = dS^T . D + dO^T Q+ + (-dV^T) K+
///
/// The multiplication by D waits for nothing, so it is done while the first product runs. Of a chunk with one anchor
/// (chunk_gradients.cuh) a walk leaves the states S and dS times D, else S and dS.
///
/// The block and its warps are those without gates. Shared memory has the tiles of three chunks of the walk from the
/// beginning, and of two of the walk from the end, which has more. There the tiles that the first two products read may
/// be filled again before the chunk is done.

#include <cuda_runtime.h>

#include "05_deltanet_wy/kda_backward/dispatch/walk_tiles.cuh"
#include "common/device/atomic.cuh"

namespace tutorial::kda {
namespace {

/// S = S . D, and passes it on times a factor: if the chunk has one anchor as it is then, as rows in shared memory, else
/// as it was, as fragments in device memory, where they take the place of rows.
/// @param state the block's rows of the chunk's state
template <int kDk>
__device__ __forceinline__ void decay_and_put(WarpgroupState<kDk>& S, const WalkMemory<kDk>& memory,
                                              DecayedBarriers& barriers, int stage, float factor, __nv_bfloat16* state,
                                              int Dk) {
  const ChunkDecays<kDk> decays = memory.decays(stage);
  const auto to = memory.stored().state;
  const bool has_anchor = decays.data[0] < 0;
  const int unit = first_unit_of_rows(), lane = int(lane_index()), column = lane % 4 * 2;
  auto* fragments = reinterpret_cast<uint4*>(state) + warp_in_group() * (Dk / 16) * 32 + lane;
#pragma unroll
  for (int d = 0; d < kDk; d += 16) {
    std::uint32_t rounded[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 two =
          *reinterpret_cast<const float2*>(decays.data + d / 32 * decays.kPanelElements + d % 32 + half * 8 + column);
      const float2 D{fabsf(two.x), fabsf(two.y)};
      const float2 stored{has_anchor ? factor * D.x : factor, has_anchor ? factor * D.y : factor};
      float* s = S + d / 2 + half * 4;
      rounded[2 * half] = pack(stored.x * s[0], stored.y * s[1]);
      rounded[2 * half + 1] = pack(stored.x * s[2], stored.y * s[3]);
      s[0] *= D.x, s[1] *= D.y, s[2] *= D.x, s[3] *= D.y;
    }
    if (has_anchor) {
      stmatrix(to.data + to.advance(unit, 0, d), rounded);
    } else if (d < Dk) {
      store_global(fragments + d * 2, make_uint4(rounded[0], rounded[1], rounded[2], rounded[3]));
    }
  }
  if (threadIdx.x == kWarpgroup) barriers.state_is_tile = has_anchor;
}

/// The walk from the beginning, by a warpgroup.
template <int kDk>
__device__ __forceinline__ void walk_forwards(const Bf16BackwardArguments& g, const WalkPlace& at,
                                              const WalkMemory<kDk>& memory, DecayedBarriers& barriers) {
  const int b = at.b, h = at.h, first = at.first();
  const auto state_of = [&](int n) { return at.states + std::int64_t(n * at.tiles + at.tile) * kColumns * g.Dk; };
  const auto stored = memory.stored();
  WarpgroupState<kDk> S;
  load_group_state<kDk>(S, g.initial_state.data ? g.initial_state.row(b, h, 0) + first : nullptr,
                        g.initial_state.stride_l, g.Dk, g.Dv - first);
  RoundedState<kDk> s;
  WarpgroupColumns residual, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  auto ring = Ring<kForwardDepth>::consumer();
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int n = 0; n < at.N; ++n) {
    const ForwardTiles<kDk> tiles = memory.forward(ring.stage());
    round_state<kDk>(s, S);
    ring.wait(barriers.full);
    load_signed_values(residual, tiles.V, unit, kMinus);
    wgmma_fence(residual, s);
    start_residual<kDk>(residual, s, tiles.K);
    wgmma_commit();
    state_ring.wait(barriers.state_empty);
    wgmma_wait<1>(S);  // done already; without it the compiler would wait for the product with K+ before it touches S
    decay_and_put<kDk>(S, memory, barriers, ring.stage(), 1, state_of(n), g.Dk);
    pass_to_copies(barriers.state_full[0]);
    state_ring.advance();
    wgmma_wait<0>(residual);

    round_columns(factor, residual);
    wgmma_fence(v_new, factor);
    start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(v_new);

    round_columns(factor, v_new);
    wgmma_fence(S, factor);
    start_state_update<kDk>(S, factor, tiles.K_end);
    wgmma_commit();
    rows_ring.wait(barriers.rows_empty);
    put_output(stored.rows, v_new, 1);
    pass_to_copies(barriers.rows_full[0]);
    wgmma_wait<0>(S);
    // V and the decays may be filled again: between the ordinary loads that have read them and this arrival is a
    // fence_async_proxy(), that of pass_to_copies().
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
    rows_ring.advance();
  }
}

/// The walk from the end, by a warpgroup.
template <int kDk>
__device__ __forceinline__ void walk_backwards(const Bf16BackwardArguments& g, const WalkPlace& at,
                                               const WalkMemory<kDk>& memory, DecayedBarriers& barriers) {
  const int b = at.b, h = at.h, first = at.first();
  const auto state_of = [&](int n) { return at.states + std::int64_t(n * at.tiles + at.tile) * kColumns * g.Dk; };
  const auto stored = memory.stored();
  WarpgroupState<kDk> S;  // dS / scale
  load_group_state<kDk>(S, g.dfinal_state.data ? g.dfinal_state.row(b, h, 0) + first : nullptr, g.dfinal_state.stride_l,
                        g.Dk, g.Dv - first);
#pragma unroll
  for (float& element : S) element /= g.scale;
  RoundedState<kDk> s;
  WarpgroupColumns X, dV;  // dV with the opposite sign, divided by scale
  WarpgroupFragments factor;
  auto ring = Ring<kReversedDepth>::consumer();  // of both kinds of tiles
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int n = at.N - 1; n >= 0; --n) {
    const FirstTiles<kDk> tiles = memory.first(ring.stage());
    round_state<kDk>(s, S);
    ring.wait(barriers.full);
    wgmma_fence(X, s);
    start_transposed_scores(X, tiles.dO, tiles.P);
    start_residual<kDk>(X, s, tiles.K_end);
    wgmma_commit();
    state_ring.wait(barriers.state_empty);
    wgmma_wait<1>(S);  // as in the other walk
    decay_and_put<kDk>(S, memory, barriers, ring.stage(), g.scale, state_of(n), g.Dk);
    wgmma_fence(S);
    start_state_update<kDk>(S, tiles.dO, tiles.Q);
    wgmma_commit();
    pass_to_copies(barriers.state_full[0]);
    state_ring.advance();
    const LaterTiles<kDk> later = memory.later(ring.stage());
    ring.wait(barriers.later_full);
    wgmma_wait<1>(X);

    round_columns(factor, X);
    wgmma_fence(dV, factor);
    start_value_gradients(dV, factor, later.T_high, later.T_low);
    wgmma_commit();
    wgmma_wait<0>(S, dV);
    // The decays may be filled again: between the ordinary loads that have read them and this arrival is a
    // fence_async_proxy(), that of pass_to_copies().
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();

    round_columns(factor, dV);
    wgmma_fence(S, factor);
    start_state_update<kDk>(S, factor, later.K);
    wgmma_commit();
    rows_ring.wait(barriers.rows_empty);
    put_output(stored.rows, dV, -g.scale);
    pass_to_copies(barriers.rows_full[0]);
    wgmma_wait<0>(S);
    if (lane_index() == 0) barriers.later_empty[ring.stage()].arrive();
    ring.advance();
    rows_ring.advance();
  }
  if (g.dinitial_state.data) {
#pragma unroll
    for (float& element : S) element *= g.scale;
    store_group_state<kDk>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk, g.Dv - first);
  }
}

/// Loads the chunks of the walk from the beginning. Called by one thread.
template <int kDk>
__device__ __forceinline__ void load_forwards(const DecayedMaps& maps, const WalkPlace& at,
                                              const WalkMemory<kDk>& memory, DecayedBarriers& barriers) {
  const int b = at.b, h = at.h, first = at.first();
  auto ring = Ring<kForwardDepth>::producer();
  for (int n = 0; n < at.N; ++n) {
    const ForwardTiles<kDk> tiles = memory.forward(ring.stage());
    const auto decays = memory.decays(ring.stage());
    const TileOrigin origin{.position = n * kChunk, .head = h, .batch = b};
    ring.wait(barriers.empty);
    Barrier& full = barriers.full[ring.stage()];
    full.arrive_expect(tiles.kBytes + decays.kLoadedBytes);
    load_panels(tiles.K, maps.K, full, origin);
    load_tile(maps.v, tiles.V.data, full, {.column = first, .position = n * kChunk, .head = h, .batch = b});
    load_panels(decays, maps.decays, full, {.position = n, .head = h, .batch = b});
    load_tile(maps.T, tiles.T_high.data, full, {.position = n * kMatrixRows, .head = h, .batch = b});
    load_panels(tiles.K_end, maps.K_end, full, origin);
    ring.advance();
  }
}

/// The same for the walk from the end.
template <int kDk>
__device__ __forceinline__ void load_backwards(const DecayedMaps& maps, const WalkPlace& at,
                                               const WalkMemory<kDk>& memory, DecayedBarriers& barriers) {
  const int b = at.b, h = at.h, first = at.first();
  auto ring = Ring<kReversedDepth>::producer();
  for (int n = at.N - 1; n >= 0; --n) {
    const FirstTiles<kDk> tiles = memory.first(ring.stage());
    const LaterTiles<kDk> later = memory.later(ring.stage());
    const auto decays = memory.decays(ring.stage());
    const TileOrigin origin{.position = n * kChunk, .head = h, .batch = b};
    ring.wait(barriers.empty);
    Barrier& full = barriers.full[ring.stage()];
    full.arrive_expect(tiles.kBytes + decays.kLoadedBytes);
    load_panels(tiles.K_end, maps.K_end, full, origin);
    load_tile(maps.d_o, tiles.dO.data, full, {.column = first, .position = n * kChunk, .head = h, .batch = b});
    load_tile(maps.P, tiles.P.data, full, {.position = n * kMatrixRows + 2 * kChunk, .head = h, .batch = b});
    load_panels(decays, maps.decays, full, {.position = n, .head = h, .batch = b});
    load_panels(tiles.Q, maps.Q, full, origin);
    ring.wait(barriers.later_empty);
    Barrier& later_full = barriers.later_full[ring.stage()];
    later_full.arrive_expect(later.kBytes);
    load_tile(maps.T, later.T_high.data, later_full, {.position = n * kMatrixRows, .head = h, .batch = b});
    load_panels(later.K, maps.K, later_full, origin);
    ring.advance();
  }
}

/// Says that so many chunks are in memory, all but the newest of the thread's groups of stores.
template <int kNewest>
__device__ __forceinline__ void report(int* progress, int chunks) {
  if (progress == nullptr) return;
  wait_stores<kNewest>();
  store_release(progress, chunks);
}

/// What the thread does that stores the states of a walk.
template <int kDk>
__device__ __forceinline__ void store_states(const TensorMap& map, const WalkPlace& at, const PanelTile<kDk>& state,
                                             DecayedBarriers& barriers) {
  int* progress = at.progress;
  auto ring = Ring<1>::consumer();
  for (int i = 0; i < at.N; ++i) {
    ring.wait(barriers.state_full);
    const int n = at.is_reversed ? at.N - 1 - i : i, row = (n * at.tiles + at.tile) * kColumns;
    for (int panel = 0; barriers.state_is_tile && panel < kDk / 64; ++panel) {
      store_tile(map, state.data + panel * state.kPanelElements,
                 {.column = panel * 64, .position = row, .head = at.h, .batch = at.b});
    }
    commit_stores();
    wait_stores_read<0>();
    barriers.state_empty[0].arrive();
    ring.advance();
    report<1>(progress, i);
  }
  report<0>(progress, at.N);
}

/// What the thread does that stores v_new or dV.
__device__ __forceinline__ void store_rows(const TensorMap& map, const WalkPlace& at, const ValuePanel& rows,
                                           WalkBarriers& barriers) {
  int* progress = at.progress ? at.progress + 1 : nullptr;
  auto ring = Ring<1>::consumer();
  for (int i = 0; i < at.N; ++i) {
    ring.wait(barriers.rows_full);
    const int n = at.is_reversed ? at.N - 1 - i : i;
    store_tile(map, rows.data, {.column = at.first(), .position = n * kChunk, .head = at.h, .batch = at.b});
    commit_stores();
    wait_stores_read<0>();
    barriers.rows_empty[0].arrive();
    ring.advance();
    report<1>(progress, i);
  }
  report<0>(progress, at.N);
}

/// A walk, by a block of kWalkThreads. What it does before it loads does not depend on the kernel before.
template <int kDk>
__device__ __forceinline__ void walk(const Bf16BackwardArguments& g, const DecayedMaps& maps, const WalkPlace& at,
                                     const WalkMemory<kDk>& memory, DecayedBarriers& barriers) {
  if (threadIdx.x == 0) {
    for (Barrier& barrier : barriers.full) barrier.init(1);
    for (Barrier& barrier : barriers.empty) barrier.init(4);
    for (Barrier& barrier : barriers.later_full) barrier.init(1);
    for (Barrier& barrier : barriers.later_empty) barrier.init(4);
    barriers.state_full[0].init(4), barriers.state_empty[0].init(1);
    barriers.rows_full[0].init(4), barriers.rows_empty[0].init(1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kWarpgroup) {
    at.is_reversed ? walk_backwards<kDk>(g, at, memory, barriers) : walk_forwards<kDk>(g, at, memory, barriers);
  } else if (threadIdx.x == 0) {
    wait_for_previous_kernel();  // rows and matrices
    at.is_reversed ? load_backwards(maps, at, memory, barriers) : load_forwards(maps, at, memory, barriers);
  } else if (threadIdx.x == 32) {
    store_states(at.is_reversed ? maps.dS : maps.S, at, memory.stored().state, barriers);
  } else if (threadIdx.x == 64) {
    store_rows(at.is_reversed ? maps.dv : maps.v_new, at, memory.stored().rows, barriers);
  }
}

/// Grid (tiles of 64 columns of Dv for each walk, H, B).
template <int kDk>
__global__ void __launch_bounds__(kWalkThreads, 1)
    walks_kernel(Bf16BackwardArguments g, const __grid_constant__ DecayedMaps maps, Workspace x, int N) {
  __shared__ DecayedBarriers barriers;
  let_next_kernel_start();
  const int b = int(blockIdx.z), h = int(blockIdx.y), tiles = int(gridDim.x) / 2, number = int(blockIdx.x);
  const bool is_reversed = number >= tiles;
  __nv_bfloat16* states = (is_reversed ? x.dS : x.S).row(b, h, 0);
  walk<kDk>(g, maps, {b, h, number % tiles, tiles, is_reversed, N, states, nullptr},
            WalkMemory<kDk>{dynamic_shared<unsigned char, kTileAlignment>()}, barriers);
}

}  // namespace
}  // namespace tutorial::kda
