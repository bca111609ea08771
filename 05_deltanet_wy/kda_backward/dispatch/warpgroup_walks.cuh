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
/// The block, its warps and its barriers are those without gates. The walk from the beginning has fewer tiles of a
/// chunk, and so one chunk more of them in shared memory.

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

/// Chunks in the shared memory of a walk.
template <bool kIsReversed>
constexpr int kDepth = kIsReversed ? 2 : 3;

/// What both walks read of a chunk in shared memory, in which V stands for V or dO, and then what the walk from the end
/// reads.
template <int kDk>
struct DecayedTiles {
  PanelTile<kDk> K, K_end;
  ValuePanel V;
  SquarePanel T_high, T_low, P;
  PanelTile<kDk> Q;

  static constexpr int kKeys = kChunk * kDk, kSquare = SquarePanel::kPanelElements;
  /// Of the tiles of a walk.
  template <bool kIsReversed>
  static constexpr int kBytes = 2 * (kIsReversed ? 3 * kKeys + 4 * kSquare : 2 * kKeys + 3 * kSquare);

  __device__ __forceinline__ explicit DecayedTiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)},
        K_end{K.data + kKeys},
        V{K_end.data + kKeys},
        T_high{V.data + kSquare},
        T_low{T_high.data + kSquare},
        P{T_low.data + kSquare},
        Q{P.data + kSquare} {}
};

template <int kDk>
using ChunkDecays = FloatPanels<1, kDk>;

/// Shared memory of a walk: tiles, what is stored, decays.
template <int kDk>
struct WalkMemory {
  using Tiles = DecayedTiles<kDk>;
  using Stored = StoredTiles<PanelShape<kDk, kColumns>>;
  static constexpr int kTiles =
      std::max(kDepth<false> * Tiles::template kBytes<false>, kDepth<true>* Tiles::template kBytes<true>);
  static constexpr int kDecays = kTiles + Stored::kBytes;
  static constexpr int kBytes = kDecays + kDepth<false> * ChunkDecays<kDk>::kBytes;

  unsigned char* data;  ///< kBytes, aligned to kTileAlignment

  template <bool kIsReversed>
  __device__ __forceinline__ Tiles tiles(int stage) const {
    return Tiles(data + stage * Tiles::template kBytes<kIsReversed>);
  }
  __device__ __forceinline__ ChunkDecays<kDk> decays(int stage) const {
    return {reinterpret_cast<const float*>(data + kDecays + stage * ChunkDecays<kDk>::kBytes)};
  }
  __device__ __forceinline__ Stored stored() const { return Stored(data + kTiles); }
};

/// The tensors of both walks.
struct DecayedMaps {
  TensorMap K, K_end, decays;
  TensorMap v, T, v_new, S;      // from the beginning
  TensorMap Q, d_o, TP, dv, dS;  // from the end
};

/// S = S . D, and writes it times a factor: as it is then if the chunk has one anchor, else as it was.
template <int kDk>
__device__ __forceinline__ void decay_and_put(WarpgroupState<kDk>& S, const PanelTile<kDk>& to,
                                              const ChunkDecays<kDk>& decays, float factor) {
  const bool has_anchor = decays.data[0] < 0;
  const int unit = first_unit_of_rows(), column = int(lane_index()) % 4 * 2;
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
    stmatrix(to.data + to.advance(unit, 0, d), rounded);
  }
}

/// The walk from the beginning, by a warpgroup.
template <int kDk>
__device__ __forceinline__ void walk_forwards(const Bf16BackwardArguments& g, int N, int first,
                                              const WalkMemory<kDk>& memory, WalkBarriers& barriers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const auto stored = memory.stored();
  WarpgroupState<kDk> S;
  load_group_state<kDk>(S, g.initial_state.data ? g.initial_state.row(b, h, 0) + first : nullptr,
                        g.initial_state.stride_l, g.Dk, g.Dv - first);
  RoundedState<kDk> s;
  WarpgroupColumns residual, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  auto ring = Ring<kDepth<false>>::consumer();
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int n = 0; n < N; ++n) {
    const auto tiles = memory.template tiles<false>(ring.stage());
    round_state<kDk>(s, S);
    ring.wait(barriers.full);
    load_signed_values(residual, tiles.V, unit, kMinus);
    wgmma_fence(residual, s);
    start_residual<kDk>(residual, s, tiles.K);
    wgmma_commit();
    state_ring.wait(barriers.state_empty);
    wgmma_wait<1>(S);  // done already; without it the compiler would wait for the product with K+ before it touches S
    decay_and_put<kDk>(S, stored.state, memory.decays(ring.stage()), 1);
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
__device__ __forceinline__ void walk_backwards(const Bf16BackwardArguments& g, int N, int first,
                                               const WalkMemory<kDk>& memory, WalkBarriers& barriers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const auto stored = memory.stored();
  WarpgroupState<kDk> S;  // dS / scale
  load_group_state<kDk>(S, g.dfinal_state.data ? g.dfinal_state.row(b, h, 0) + first : nullptr, g.dfinal_state.stride_l,
                        g.Dk, g.Dv - first);
#pragma unroll
  for (float& element : S) element /= g.scale;
  RoundedState<kDk> s;
  WarpgroupColumns X, dV;  // dV with the opposite sign, divided by scale
  WarpgroupFragments factor;
  auto ring = Ring<kDepth<true>>::consumer();
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int n = N - 1; n >= 0; --n) {
    const auto tiles = memory.template tiles<true>(ring.stage());
    round_state<kDk>(s, S);
    ring.wait(barriers.full);
    wgmma_fence(X, s);
    start_transposed_scores(X, tiles.V, tiles.P);
    start_residual<kDk>(X, s, tiles.K_end);
    wgmma_commit();
    state_ring.wait(barriers.state_empty);
    wgmma_wait<1>(S);  // as in the other walk
    decay_and_put<kDk>(S, stored.state, memory.decays(ring.stage()), g.scale);
    wgmma_fence(S);
    start_state_update<kDk>(S, tiles.V, tiles.Q);
    wgmma_commit();
    pass_to_copies(barriers.state_full[0]);
    state_ring.advance();
    wgmma_wait<1>(X);

    round_columns(factor, X);
    wgmma_fence(dV, factor);
    start_value_gradients(dV, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(S, dV);

    round_columns(factor, dV);
    wgmma_fence(S, factor);
    start_state_update<kDk>(S, factor, tiles.K);
    wgmma_commit();
    rows_ring.wait(barriers.rows_empty);
    put_output(stored.rows, dV, -g.scale);
    pass_to_copies(barriers.rows_full[0]);
    wgmma_wait<0>(S);
    // As in the other walk; here only the decays have been read by ordinary loads.
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
    rows_ring.advance();
  }
  if (g.dinitial_state.data) {
#pragma unroll
    for (float& element : S) element *= g.scale;
    store_group_state<kDk>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk, g.Dv - first);
  }
}

/// Loads the chunks of a walk. Called by one thread. @param first the block's column of Dv
template <int kDk, bool kIsReversed>
__device__ __forceinline__ void load_chunks(const DecayedMaps& maps, const WalkMemory<kDk>& memory,
                                            WalkBarriers& barriers, int N, int first) {
  constexpr unsigned kBytes = unsigned(DecayedTiles<kDk>::template kBytes<kIsReversed>);
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  auto ring = Ring<kDepth<kIsReversed>>::producer();
  for (int i = 0; i < N; ++i) {
    const int n = kIsReversed ? N - 1 - i : i, t = n * kChunk;
    const auto tiles = memory.template tiles<kIsReversed>(ring.stage());
    const auto decays = memory.decays(ring.stage());
    const TileOrigin origin{.position = t, .head = h, .batch = b};
    ring.wait(barriers.empty);
    Barrier& full = barriers.full[ring.stage()];
    full.arrive_expect(kBytes + decays.kLoadedBytes);
    // In the order in which the walk needs them.
    load_panels(kIsReversed ? tiles.K_end : tiles.K, kIsReversed ? maps.K_end : maps.K, full, origin);
    load_tile(kIsReversed ? maps.d_o : maps.v, tiles.V.data, full,
              {.column = first, .position = t, .head = h, .batch = b});
    load_panels(decays, maps.decays, full, {.position = n, .head = h, .batch = b});
    if constexpr (kIsReversed) load_panels(tiles.Q, maps.Q, full, origin);
    load_tile(kIsReversed ? maps.TP : maps.T, tiles.T_high.data, full,
              {.position = n * kMatrixRows, .head = h, .batch = b});
    load_panels(kIsReversed ? tiles.K : tiles.K_end, kIsReversed ? maps.K : maps.K_end, full, origin);
    ring.advance();
  }
}

/// May start early: what it does before it loads does not depend on the kernel before.
/// Grid (tiles of 64 columns of Dv for each walk, H, B).
template <int kDk>
__global__ void __launch_bounds__(kWalkThreads, 1)
    walks_kernel(Bf16BackwardArguments g, const __grid_constant__ DecayedMaps maps, int N) {
  let_next_kernel_start();
  __shared__ WalkBarriers barriers;
  const int tiles = int(gridDim.x) / 2, tile = int(blockIdx.x) % tiles, first = tile * kColumns;
  const bool is_reversed = int(blockIdx.x) >= tiles;
  const WalkMemory<kDk> memory{dynamic_shared<unsigned char, kTileAlignment>()};
  if (threadIdx.x == 0) {
    for (Barrier& barrier : barriers.full) barrier.init(1);
    for (Barrier& barrier : barriers.empty) barrier.init(4);
    barriers.state_full[0].init(4), barriers.state_empty[0].init(1);
    barriers.rows_full[0].init(4), barriers.rows_empty[0].init(1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kWarpgroup) {
    is_reversed ? walk_backwards<kDk>(g, N, first, memory, barriers)
                : walk_forwards<kDk>(g, N, first, memory, barriers);
    return;
  }
  if (threadIdx.x == 0) {
    wait_for_previous_kernel();  // rows and matrices
    is_reversed ? load_chunks<kDk, true>(maps, memory, barriers, N, first)
                : load_chunks<kDk, false>(maps, memory, barriers, N, first);
  } else if (threadIdx.x == 32) {
    store_states<1>(is_reversed ? maps.dS : maps.S, memory.stored(), barriers, N, tile, tiles, is_reversed);
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
          .decays = float_tile_map(packed<const float>(x.decays, g.H, x.N, g.Dk), decays, 1),
          .v = tile_map(g.v, values, kChunk),
          .T = prepared_map(g, x.matrices, matrices, kChunk, 2 * kChunk),
          .v_new = tile_map(out.v_new, values, kChunk),
          .S = tile_map(out.S, out.states, kColumns),
          .Q = prepared_map(g, x.Q, rows, g.Dk, kChunk),
          .d_o = tile_map(g.d_o, values, kChunk),
          .TP = prepared_map(g, x.matrices, matrices, kChunk, kMatrixRows),
          .dv = tile_map(g.dv, values, kChunk),
          .dS = tile_map(out.dS, out.states, kColumns)};
}

}  // namespace
}  // namespace tutorial::kda
