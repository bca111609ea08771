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

#include <algorithm>

#include "05_deltanet_wy/delta_rule_backward/warpgroup_walks.cuh"
#include "05_deltanet_wy/kda_backward.hpp"
#include "05_deltanet_wy/kda_backward/dispatch/prepare_chunks.hpp"
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

/// Shared memory of a walk: tiles, what is stored, decays.
template <int kDk>
struct WalkMemory {
  using Stored = StoredTiles<PanelShape<kDk, kColumns>>;
  static constexpr int kLater = kReversedDepth * FirstTiles<kDk>::kBytes;
  static constexpr int kTiles =
      std::max(kForwardDepth * ForwardTiles<kDk>::kBytes, kLater + kReversedDepth * LaterTiles<kDk>::kBytes);
  static constexpr int kDecays = kTiles + Stored::kBytes;
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
};

/// The barriers of a walk. In the walk from the end `full` and `empty` are those of the first tiles.
struct DecayedBarriers : WalkBarriers {
  Barrier later_full[kReversedDepth], later_empty[kReversedDepth];
  int state_is_tile;  ///< whether the state that has been passed on lies in shared memory
};

/// The tensors of both walks.
struct DecayedMaps {
  TensorMap K, K_end, T, decays;
  TensorMap v, v_new, S;        // from the beginning
  TensorMap Q, P, d_o, dv, dS;  // from the end
};

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
__device__ __forceinline__ void walk_forwards(const Bf16BackwardArguments& g, __nv_bfloat16* states, int N, int first,
                                              const WalkMemory<kDk>& memory, DecayedBarriers& barriers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int rows = int(gridDim.x) / 2 * kColumns;  // of a state
  const auto state_of = [&](int n) { return states + (std::int64_t(n) * rows + first) * g.Dk; };
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
  for (int n = 0; n < N; ++n) {
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
__device__ __forceinline__ void walk_backwards(const Bf16BackwardArguments& g, __nv_bfloat16* states, int N, int first,
                                               const WalkMemory<kDk>& memory, DecayedBarriers& barriers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int rows = int(gridDim.x) / 2 * kColumns;  // of a state
  const auto state_of = [&](int n) { return states + (std::int64_t(n) * rows + first) * g.Dk; };
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
  for (int n = N - 1; n >= 0; --n) {
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

/// Loads the chunks of the walk from the beginning. Called by one thread. @param first the block's column of Dv
template <int kDk>
__device__ __forceinline__ void load_forwards(const DecayedMaps& maps, const WalkMemory<kDk>& memory,
                                              DecayedBarriers& barriers, int N, int first) {
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  auto ring = Ring<kForwardDepth>::producer();
  for (int n = 0; n < N; ++n) {
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
__device__ __forceinline__ void load_backwards(const DecayedMaps& maps, const WalkMemory<kDk>& memory,
                                               DecayedBarriers& barriers, int N, int first) {
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  auto ring = Ring<kReversedDepth>::producer();
  for (int n = N - 1; n >= 0; --n) {
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

/// What the thread does that stores the states of a walk.
template <int kDk>
__device__ __forceinline__ void store_states(const TensorMap& map, const PanelTile<kDk>& state,
                                             DecayedBarriers& barriers, int N, int tile, int tiles, bool is_reversed) {
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  auto ring = Ring<1>::consumer();
  for (int i = 0; i < N; ++i) {
    ring.wait(barriers.state_full);
    const int row = ((is_reversed ? N - 1 - i : i) * tiles + tile) * kColumns;
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
/// Grid (tiles of 64 columns of Dv for each walk, H, B).
template <int kDk>
__global__ void __launch_bounds__(kWalkThreads, 1)
    walks_kernel(Bf16BackwardArguments g, const __grid_constant__ DecayedMaps maps, Workspace out, int N) {
  let_next_kernel_start();
  __shared__ DecayedBarriers barriers;
  const int tiles = int(gridDim.x) / 2, tile = int(blockIdx.x) % tiles, first = tile * kColumns;
  const bool is_reversed = int(blockIdx.x) >= tiles;
  const WalkMemory<kDk> memory{dynamic_shared<unsigned char, kTileAlignment>()};
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
    __nv_bfloat16* states = (is_reversed ? out.dS : out.S).row(blockIdx.z, blockIdx.y, 0);
    is_reversed ? walk_backwards<kDk>(g, states, N, first, memory, barriers)
                : walk_forwards<kDk>(g, states, N, first, memory, barriers);
    return;
  }
  if (threadIdx.x == 0) {
    wait_for_previous_kernel();  // rows and matrices
    is_reversed ? load_backwards(maps, memory, barriers, N, first) : load_forwards(maps, memory, barriers, N, first);
  } else if (threadIdx.x == 32) {
    store_states(is_reversed ? maps.dS : maps.S, memory.stored().state, barriers, N, tile, tiles, is_reversed);
  } else if (threadIdx.x == 64) {
    store_rows(is_reversed ? maps.dv : maps.v_new, memory.stored(), barriers, N, first, is_reversed);
  }
}

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
          .dS = tile_map(out.dS, out.states, kColumns)};
}

}  // namespace
}  // namespace tutorial::kda
