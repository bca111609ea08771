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
/// In a marked chunk (chunk/alike_keys.cuh) all factors whose errors do not cancel there are two bf16: v_new, dS, X and dV,
/// which the walk has in fp32, and K- and P, of which prepare_chunks() leaves the second bf16. That comes to a place of its
/// own, asked for where the walk sees the mark.
///
/// The block and its warps are those without gates, and so are segments (delta_rule_backward/dispatch/walk_segments.cuh).
/// There the G of a segment is a decay for each row of S, and a map's values are the columns of -K+, each times the decay
/// of that row before the chunk. Shared memory has the tiles of three chunks of the walk from the
/// beginning, and of two of the walk from the end, which has more. There the tiles that the first two products read may
/// be filled again before the chunk is done.

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/chunk/decay_columns.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/walk_segments.cuh"
#include "05_deltanet_wy/delta_rule_backward/warpgroup_walks.cuh"
#include "05_deltanet_wy/kda_backward.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/prepare_chunks.hpp"
#include "common/device/cp_async.cuh"
#include "common/tile/float_panels.cuh"

namespace tutorial::kda {
namespace {

using namespace delta_rule;  // walks without gates
using namespace tile;

constexpr int kForwardDepth = 3, kReversedDepth = 2;  // chunks in the shared memory of a walk

/// What the walk from the beginning reads of a chunk in shared memory.
template <int kDk>
struct ForwardTiles {
  PanelTile<kDk> K, K_end;
  ValuePanel V;
  SquarePanel T_high, T_low;

  static constexpr int kBytes = 2 * (2 * kChunk * kDk + 3 * SquarePanel::kPanelElements);

  __device__ __forceinline__ explicit ForwardTiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)},
        K_end{K.data + kChunk * kDk},
        V{K_end.data + kChunk * kDk},
        T_high{V.data + V.kPanelElements},
        T_low{T_high.data + T_high.kPanelElements} {}
};

/// What the walk from the end reads first of a chunk.
template <int kDk>
struct FirstTiles {
  PanelTile<kDk> K_end, Q;
  ValuePanel dO;
  SquarePanel P;

  static constexpr int kBytes = 2 * (2 * kChunk * kDk + 2 * SquarePanel::kPanelElements);

  __device__ __forceinline__ explicit FirstTiles(unsigned char* memory)
      : K_end{reinterpret_cast<__nv_bfloat16*>(memory)},
        Q{K_end.data + kChunk * kDk},
        dO{Q.data + kChunk * kDk},
        P{dO.data + dO.kPanelElements} {}
};

/// What it reads then, when the first tiles may be filled again.
template <int kDk>
struct LaterTiles {
  SquarePanel T_high, T_low;
  PanelTile<kDk> K;

  static constexpr int kBytes = 2 * (kChunk * kDk + 2 * SquarePanel::kPanelElements);

  __device__ __forceinline__ explicit LaterTiles(unsigned char* memory)
      : T_high{reinterpret_cast<__nv_bfloat16*>(memory)},
        T_low{T_high.data + T_high.kPanelElements},
        K{T_low.data + T_low.kPanelElements} {}
};

template <int kDk>
using ChunkDecays = FloatPanels<1, kDk>;

/// What rounding leaves out of K- and P in a marked chunk.
template <int kDk>
struct ErrorTiles {
  PanelTile<kDk> K_end;
  SquarePanel P;

  static constexpr int kOfK = 2 * kChunk * kDk;  ///< bytes of K_end
};

/// Shared memory of a walk: tiles, what is stored, errors, decays.
template <int kDk>
struct WalkMemory {
  using Stored = StoredTiles<PanelShape<kDk, kColumns>>;
  static constexpr int kLater = kReversedDepth * FirstTiles<kDk>::kBytes;
  static constexpr int kErrorsOfP = kLater + kReversedDepth * LaterTiles<kDk>::kBytes;  ///< in the walk from the end
  static constexpr int kTiles =
      std::max(kForwardDepth * ForwardTiles<kDk>::kBytes, kErrorsOfP + int(SquarePanel::kPanelBytes));
  static constexpr int kErrors = kTiles + Stored::kBytes;
  static constexpr int kDecays = kErrors + ErrorTiles<kDk>::kOfK;
  static constexpr int kBytes = kDecays + kForwardDepth * ChunkDecays<kDk>::kBytes;

  unsigned char* data;  ///< kBytes, aligned to kTileAlignment

  __device__ __forceinline__ ForwardTiles<kDk> forward(int stage) const {
    return ForwardTiles<kDk>(data + stage * ForwardTiles<kDk>::kBytes);
  }
  __device__ __forceinline__ FirstTiles<kDk> first(int stage) const {
    return FirstTiles<kDk>(data + stage * FirstTiles<kDk>::kBytes);
  }
  __device__ __forceinline__ LaterTiles<kDk> later(int stage) const {
    return LaterTiles<kDk>(data + kLater + stage * LaterTiles<kDk>::kBytes);
  }
  __device__ __forceinline__ ChunkDecays<kDk> decays(int stage) const {
    return {reinterpret_cast<const float*>(data + kDecays + stage * ChunkDecays<kDk>::kBytes)};
  }
  __device__ __forceinline__ Stored stored() const { return Stored(data + kTiles); }
  __device__ __forceinline__ ErrorTiles<kDk> errors() const {
    return {{reinterpret_cast<__nv_bfloat16*>(data + kErrors)}, {reinterpret_cast<__nv_bfloat16*>(data + kErrorsOfP)}};
  }
};

/// The barriers of a walk. In the walk from the end `full` and `empty` are those of the first tiles.
struct DecayedBarriers : WalkBarriers {
  Barrier later_full[kReversedDepth], later_empty[kReversedDepth];
  Barrier errors_full[1];
  int state_is_tile;  ///< whether the state that has been passed on lies in shared memory
};

/// The tensors of both walks.
struct DecayedMaps {
  TensorMap K, K_end, T, decays;
  TensorMap v, v_new, S;                   // from the beginning
  TensorMap Q, P, d_o, dv, dS;             // from the end
  TensorMap K_errors, P_errors, v_errors;  // of marked chunks
};

/// Starts to load what rounding leaves out of K- in chunk n, and of P if it is wanted. Called by all threads of the walk's
/// warpgroup. Their products with what was there before are done.
template <int kDk>
__device__ __forceinline__ void load_errors(const ErrorTiles<kDk>& to, const DecayedMaps& maps, Barrier& full, int n,
                                            int h, int b, bool with_P) {
  wait_at_named_barrier(kChain, kWarpgroup);
  if (threadIdx.x != kWarpgroup) return;
  const TileOrigin rows{.position = n * kChunk, .head = h, .batch = b};
  full.arrive_expect(unsigned(to.kOfK + (with_P ? int(SquarePanel::kPanelBytes) : 0)));
  load_panels(to.K_end, maps.K_errors, full, rows);
  if (with_P) load_tile(maps.P_errors, to.P.data, full, rows);
}

/// S = S . D, and if it is left, passes it on times a factor: if the chunk has one anchor as it is then, as rows in shared
/// memory, else as it was, as fragments in device memory, where they take the place of rows.
/// @param state the block's rows of the chunk's state
template <int kDk>
__device__ __forceinline__ void decay_and_put(WarpgroupState<kDk>& S, const WalkMemory<kDk>& memory,
                                              DecayedBarriers& barriers, int stage, float factor, __nv_bfloat16* state,
                                              int Dk, bool is_left) {
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
    if (!is_left) continue;
    if (has_anchor) {
      stmatrix(to.data + to.advance(unit, 0, d), rounded);
    } else if (d < Dk) {
      store_global(fragments + d * 2, make_uint4(rounded[0], rounded[1], rounded[2], rounded[3]));
    }
  }
  if (is_left && threadIdx.x == kWarpgroup) barriers.state_is_tile = has_anchor;
}

/// What rounding leaves out of S, rounded.
template <int kDk>
__device__ __forceinline__ void round_errors_of_state(RoundedState<kDk>& errors, const WarpgroupState<kDk>& S) {
#pragma unroll
  for (int d = 0; d < kDk; d += 16) {
    float x[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = S[d / 2 + i];
    keep_errors(x);
    wgmma_fragment(errors[d / 16], x, 0);
  }
}

/// The decays of the rows of a state that a thread has of Psi^T, before a chunk: two of G.
template <int kDk>
struct RowDecays {
  int rows[2];  ///< of S
  float decays[2] = {1, 1};

  __device__ __forceinline__ explicit RowDecays(int first) : rows{first + wgmma_row(0), first + wgmma_row(2)} {}
  __device__ __forceinline__ void multiply(const ChunkDecays<kDk>& by) {
#pragma unroll
    for (int i = 0; i < 2; ++i) decays[i] *= fabsf(by.data[rows[i] / 32 * by.kPanelElements + rows[i] % 32]);
  }
  __device__ __forceinline__ void multiply_into(WarpgroupColumns& sums) const {
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) sums[i] *= decays[i / 2 % 2];
  }
};

/// The walk from the beginning, by a warpgroup.
/// @param states of the block's head: S^T of chunks, of which it has 64 rows @param rows of each
/// @param G of a map
template <int kDk, bool kIsMap>
__device__ __forceinline__ void walk_forwards(WarpgroupState<kDk>& S, RowDecays<kDk>& G, const Bf16BackwardArguments& g,
                                              const BlockOfWalk<kDk, kIsMap>& at, __nv_bfloat16* states, int rows,
                                              const DecayedMaps& maps, const WalkMemory<kDk>& memory,
                                              DecayedBarriers& barriers) {
  const auto state_of = [&](int n) { return states + (std::int64_t(n) * rows + at.first) * g.Dk; };
  const auto stored = memory.stored();
  const bool is_transition = kIsMap && at.walk == Walk::transition;
  RoundedState<kDk> s;
  WarpgroupColumns residual, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  auto ring = Ring<kForwardDepth>::consumer();
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  auto errors_ring = Ring<1>::consumer();
  for (int i = at.chunks.begin(); i < at.chunks.count; ++i) {
    const bool is_left = !kIsMap && i >= 0;
    const ForwardTiles<kDk> tiles = memory.forward(ring.stage());
    const ValuePanel V{is_transition ? tiles.K.data + at.tile * tiles.K.kPanelElements : tiles.V.data};
    round_state<kDk>(s, S);
    ring.wait(barriers.full);
    load_signed_values(residual, V, unit, is_transition ? kPlus : kMinus);
    const bool alike = is_marked(tiles.T_high);
    if (alike) load_errors(memory.errors(), maps, barriers.errors_full[0], at.chunks[i], at.h, at.b, false);
    if (is_transition) {
      G.multiply_into(residual);
      G.multiply(memory.decays(ring.stage()));
    }
    wgmma_fence(residual, s);
    start_residual<kDk>(residual, s, tiles.K);
    wgmma_commit();
    if (is_left) state_ring.wait(barriers.state_empty);
    wgmma_wait<1>(S);  // done already; without it the compiler would wait for the product with K+ before it touches S
    decay_and_put<kDk>(S, memory, barriers, ring.stage(), 1, state_of(at.chunks[i]), g.Dk, is_left);
    if (is_left) {
      pass_to_copies(barriers.state_full[0]);
      state_ring.advance();
    }
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
      WarpgroupFragments errors;
      keep_errors(v_new);
      round_columns(errors, v_new);
      errors_ring.wait(barriers.errors_full);
      errors_ring.advance();
      wgmma_fence(S, factor, errors);
      start_state_update<kDk>(S, factor, memory.errors().K_end);
      start_state_update<kDk>(S, errors, tiles.K_end);
      wgmma_commit();
      wgmma_wait<0>(S);
      if (is_left) {
        rows_ring.wait(barriers.rows_empty);
        put_output(stored.rows, v_new, 1);
        pass_to_copies(barriers.rows_full[0]);
        rows_ring.advance();
      }
    }
    // V and the decays may be filled again: between the ordinary loads that have read them and this arrival is a
    // fence_async_proxy(), that of pass_to_copies() or end_reads().
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
  }
}

/// The walk from the end, by a warpgroup. Its state is dS / scale.
/// @param states,rows as in the other walk, of dS^T
template <int kDk, bool kIsMap>
__device__ __forceinline__ void walk_backwards(WarpgroupState<kDk>& S, const Bf16BackwardArguments& g,
                                               const BlockOfWalk<kDk, kIsMap>& at, __nv_bfloat16* states, int rows,
                                               const DecayedMaps& maps, const WalkMemory<kDk>& memory,
                                               DecayedBarriers& barriers) {
  const auto state_of = [&](int n) { return states + (std::int64_t(n) * rows + at.first) * g.Dk; };
  const auto stored = memory.stored();
  RoundedState<kDk> s;
  WarpgroupColumns X, dV;  // dV with the opposite sign, divided by scale
  WarpgroupFragments factor;
  auto ring = Ring<kReversedDepth>::consumer();  // of both kinds of tiles
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  auto errors_ring = Ring<1>::consumer();
  for (int i = at.chunks.begin(); i < at.chunks.count; ++i) {
    const bool is_left = !kIsMap && i >= 0;
    const FirstTiles<kDk> tiles = memory.first(ring.stage());
    round_state<kDk>(s, S);
    ring.wait(barriers.full);
    const bool alike = is_marked(tiles.P);
    if (alike) load_errors(memory.errors(), maps, barriers.errors_full[0], at.chunks[i], at.h, at.b, true);
    wgmma_fence(X, s);
    start_transposed_scores(X, tiles.dO, tiles.P);
    start_residual<kDk>(X, s, tiles.K_end);
    wgmma_commit();
    if (alike) {
      const ErrorTiles<kDk> errors = memory.errors();
      RoundedState<kDk> of_state;
      round_errors_of_state<kDk>(of_state, S);
      wgmma_wait<0>(X, s);  // no products are under way in a branch: the compiler could not keep track of them
      errors_ring.wait(barriers.errors_full);
      errors_ring.advance();
      wgmma_fence(X, s, of_state);
      start_transposed_scores(X, tiles.dO, errors.P, true);
      start_residual<kDk>(X, s, errors.K_end);
      start_residual<kDk>(X, of_state, tiles.K_end);
      wgmma_commit();
      wgmma_wait<0>(X, s, of_state);
    }
    if (is_left) state_ring.wait(barriers.state_empty);
    wgmma_wait<1>(S);  // as in the other walk
    decay_and_put<kDk>(S, memory, barriers, ring.stage(), g.scale, state_of(at.chunks[i]), g.Dk, is_left);
    wgmma_fence(S);
    start_state_update<kDk>(S, tiles.dO, tiles.Q);
    wgmma_commit();
    if (is_left) {
      pass_to_copies(barriers.state_full[0]);
      state_ring.advance();
    } else {
      end_reads();
    }
    const LaterTiles<kDk> later = memory.later(ring.stage());
    ring.wait(barriers.later_full);
    wgmma_wait<1>(X);

    round_columns(factor, X);
    wgmma_fence(dV, factor);
    start_value_gradients(dV, factor, later.T_high, later.T_low);
    wgmma_commit();
    wgmma_wait<0>(S, dV);
    if (alike) add_errors_of_value_gradients(dV, X, later.T_high);
    // The decays may be filled again, as in the other walk.
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();

    round_columns(factor, dV);
    wgmma_fence(S, factor);
    start_state_update<kDk>(S, factor, later.K);
    wgmma_commit();
    if (is_left) {
      rows_ring.wait(barriers.rows_empty);
      put_output(stored.rows, dV, -g.scale);
      pass_to_copies(barriers.rows_full[0]);
      rows_ring.advance();
    }
    wgmma_wait<0>(S);
    if (alike) {
      WarpgroupFragments errors;
      keep_errors(dV);
      round_columns(errors, dV);
      wgmma_fence(S, errors);
      start_state_update<kDk>(S, errors, later.K);
      wgmma_commit();
      wgmma_wait<0>(S);
    }
    if (lane_index() == 0) barriers.later_empty[ring.stage()].arrive();
    ring.advance();
  }
}

/// Loads the chunks of the walk from the beginning. Called by one thread.
template <int kDk, bool kIsMap>
__device__ __forceinline__ void load_forwards(const DecayedMaps& maps, const WalkMemory<kDk>& memory,
                                              DecayedBarriers& barriers, const BlockOfWalk<kDk, kIsMap>& at) {
  const bool has_values = !kIsMap || at.walk != Walk::transition;
  auto ring = Ring<kForwardDepth>::producer();
  for (int i = at.chunks.begin(); i < at.chunks.count; ++i) {
    const int n = at.chunks[i];
    const ForwardTiles<kDk> tiles = memory.forward(ring.stage());
    const auto decays = memory.decays(ring.stage());
    const TileOrigin origin{.position = n * kChunk, .head = at.h, .batch = at.b};
    ring.wait(barriers.empty);
    Barrier& full = barriers.full[ring.stage()];
    full.arrive_expect(tiles.kBytes - (has_values ? 0 : tiles.V.kPanelBytes) + decays.kLoadedBytes);
    load_panels(tiles.K, maps.K, full, origin);
    if (has_values) {
      load_tile(maps.v, tiles.V.data, full, {.column = at.first, .position = n * kChunk, .head = at.h, .batch = at.b});
    }
    load_panels(decays, maps.decays, full, {.position = n, .head = at.h, .batch = at.b});
    load_tile(maps.T, tiles.T_high.data, full, {.position = n * kMatrixRows, .head = at.h, .batch = at.b});
    load_panels(tiles.K_end, maps.K_end, full, origin);
    ring.advance();
  }
}

/// The same for the walk from the end.
template <int kDk, bool kIsMap>
__device__ __forceinline__ void load_backwards(const DecayedMaps& maps, const WalkMemory<kDk>& memory,
                                               DecayedBarriers& barriers, const BlockOfWalk<kDk, kIsMap>& at) {
  const int h = at.h, b = at.b;
  auto ring = Ring<kReversedDepth>::producer();
  for (int i = at.chunks.begin(); i < at.chunks.count; ++i) {
    const int n = at.chunks[i];
    const FirstTiles<kDk> tiles = memory.first(ring.stage());
    const LaterTiles<kDk> later = memory.later(ring.stage());
    const auto decays = memory.decays(ring.stage());
    const TileOrigin origin{.position = n * kChunk, .head = h, .batch = b};
    ring.wait(barriers.empty);
    Barrier& full = barriers.full[ring.stage()];
    full.arrive_expect(tiles.kBytes + decays.kLoadedBytes);
    load_panels(tiles.K_end, maps.K_end, full, origin);
    load_tile(maps.d_o, tiles.dO.data, full, {.column = at.first, .position = n * kChunk, .head = h, .batch = b});
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

/// What the thread does that stores the states of a walk.
template <int kDk>
__device__ __forceinline__ void store_states(const TensorMap& map, const PanelTile<kDk>& state,
                                             DecayedBarriers& barriers, const ChunksOfWalk& chunks, int tile,
                                             int tiles) {
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  auto ring = Ring<1>::consumer();
  for (int i = 0; i < chunks.count; ++i) {
    ring.wait(barriers.state_full);
    const int row = (chunks[i] * tiles + tile) * kColumns;
    for (int panel = 0; barriers.state_is_tile && panel < kDk / 64; ++panel) {
      store_tile(map, state.data + panel * state.kPanelElements,
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
template <int kDk, bool kIsMap>
__global__ void __launch_bounds__(kWalkThreads, 1)
    walks_kernel(Bf16BackwardArguments g, const __grid_constant__ DecayedMaps maps, Workspace out,
                 WalkSegments<kDk> segments) {
  let_next_kernel_start();
  __shared__ DecayedBarriers barriers;
  const BlockOfWalk<kDk, kIsMap> at(segments, g.H);
  if (!at.is_needed) return;
  const WalkMemory<kDk> memory{dynamic_shared<unsigned char, kTileAlignment>()};
  if (threadIdx.x == 0) {
    for (Barrier& barrier : barriers.full) barrier.init(1);
    for (Barrier& barrier : barriers.empty) barrier.init(4);
    for (Barrier& barrier : barriers.later_full) barrier.init(1);
    for (Barrier& barrier : barriers.later_empty) barrier.init(4);
    barriers.errors_full[0].init(1);
    barriers.state_full[0].init(4), barriers.state_empty[0].init(1);
    barriers.rows_full[0].init(4), barriers.rows_empty[0].init(1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kWarpgroup) {
    __nv_bfloat16* states = (at.is_reversed ? out.dS : out.S).row(at.b, at.h, 0);
    const int rows = segments.starts.tiles * kColumns;
    WarpgroupState<kDk> S;
    at.load_state(S, g, segments);
    if (at.is_reversed) {
      walk_backwards<kDk, kIsMap>(S, g, at, states, rows, maps, memory, barriers);
    } else {
      RowDecays<kDk> G(at.first);
      walk_forwards<kDk, kIsMap>(S, G, g, at, states, rows, maps, memory, barriers);
      if (kIsMap && at.walk == Walk::transition && lane_index() % 4 == 0) {
        float* to = segments.decays + (std::int64_t(at.head) * (segments.count - 1) + at.segment) * kDk;
        for (int i = 0; i < 2; ++i) store_global(to + G.rows[i], G.decays[i]);
      }
    }
    at.store_state(S, g, segments);
    return;
  }
  if (threadIdx.x == 0) {
    wait_for_previous_kernel();  // rows and matrices
    at.is_reversed ? load_backwards(maps, memory, barriers, at) : load_forwards(maps, memory, barriers, at);
  } else if (threadIdx.x == 32) {
    store_states(at.is_reversed ? maps.dS : maps.S, memory.stored().state, barriers, at.chunks, at.tile,
                 segments.starts.tiles);
  } else if (threadIdx.x == 64) {
    store_rows(at.is_reversed ? maps.dv : maps.v_new, at.is_reversed ? nullptr : &maps.v_errors, memory.stored(),
               barriers, at.chunks, at.first);
  }
}

/// As KeptWithOneGate, with a decay for each row.
template <int kDk>
class KeptWithRowGates : public KeptWithOneGate<kDk> {
  using Base = KeptWithOneGate<kDk>;

 public:
  using Base::Base;

  /// They come to shared memory, for each warp by itself: there are no registers for them.
  __device__ __forceinline__ void load(int segment) {
    segment_ = segment;
    const int row = int(lane_index()) * 4;
    if (row < kDk && this->needs_past(segment)) cp_async<16>(row_of_warp() + row, this->decays_of(segment, kDk) + row);
    cp_async_commit();
  }
  __device__ __forceinline__ void add(WarpgroupState<kDk>& S, const WarpgroupState<kDk>& H) const {
    cp_async_wait<0>();
    __syncwarp();
    decay_columns(S, row_of_warp());
#pragma unroll
    for (int i = 0; i < kDk / 2; ++i) S[i] += H[i];
  }

 private:
  /// Those of the segment, and in turn those of the next one: no lane reads the ones before any more when they are
  /// replaced.
  __device__ __forceinline__ float* row_of_warp() const {
    alignas(16) __shared__ float rows[2][kCarryThreads / 32][kDk];
    return rows[segment_ % 2][threadIdx.x / 32];
  }

  int segment_ = 0;
};

/// The map of rows that prepare_chunks() has left. @param rows of a sequence, of a tile
inline TensorMap prepared_map(const Bf16BackwardArguments& g, const __nv_bfloat16* data, std::int64_t rows, int columns,
                              int tile) {
  return tile_map(packed(data, g.H, rows, columns), {g.B, g.H, rows, columns}, tile);
}

/// The tensors of both walks.
inline DecayedMaps walk_maps(const Bf16BackwardArguments& g, const PreparedChunks& x, const Workspace& out) {
  const TensorSizes values = tensor_sizes(g, g.Dv), decays{g.B, g.H, x.N, g.Dk};
  const std::int64_t rows = std::int64_t(x.N) * kChunk, matrices = std::int64_t(x.N) * kMatrixRows;
  return {.K = prepared_map(g, x.K, rows, g.Dk, kChunk),
          .K_end = prepared_map(g, x.K_end, rows, g.Dk, kChunk),
          .T = prepared_map(g, x.matrices, matrices, kChunk, 2 * kChunk),
          .decays = float_tile_map(packed<const float>(x.decays, g.H, x.N, g.Dk), decays, 1),
          .v = tile_map(g.v, values, kChunk),
          .v_new = tile_map(out.v_new, values, kChunk),
          .S = tile_map(out.S, out.states, kColumns),
          .Q = prepared_map(g, x.Q, rows, g.Dk, kChunk),
          .P = prepared_map(g, x.matrices, matrices, kChunk, kChunk),
          .d_o = tile_map(g.d_o, values, kChunk),
          .dv = tile_map(g.dv, values, kChunk),
          .dS = tile_map(out.dS, out.states, kColumns),
          .K_errors = prepared_map(g, x.K_errors, rows, g.Dk, kChunk),
          .P_errors = prepared_map(g, x.P_errors, rows, kChunk, kChunk),
          .v_errors = tile_map(out.v_errors, values, kChunk)};
}

}  // namespace
}  // namespace tutorial::kda
