/// @file
/// Stage 5, `warpgroups`: both walks and the last kernel on products of warpgroups.
///
/// Idea: a walk is a chain of products, each of which needs the rounded sums of the one before. A warpgroup keeps these
/// sums in registers as the left factor of the next product, as in `warpgroup_chain` of the operator. The right factors
/// are tiles as bulk copies bring them, and no thread transposes any: a flag of the product says in which direction it
/// reads a tile (common/device/wgmma.cuh). So T and P serve both walks as they are, T for v_new and T^T for dV.
///
///     from the beginning   residual^T = S^T K^T - V^T       v_new^T = residual^T (-T)^T    S^T += v_new^T K
///     from the end         X^T = dS^T K^T + dO^T P          -dV^T = X^T (-T)               dS^T += dO^T Q + (-dV^T) K
///
/// Other threads load chunks and store S, dS, v_new and dV, by bulk copies, while the chain goes on.
///
/// In the last kernel, dQ and dK begin alike: with X = dO or X = dV a warpgroup computes X v_new^T and X S^T. Then it
/// adds what is its own. A block has one chunk. It needs all of its shared memory twice: dS takes the place of S, the
/// scores that of dO and dV, and the gradients that of Q and K. So two blocks share a multiprocessor, and while one
/// waits for its tiles, the other computes.
/// Grows out of: 4_both_ends.cu; port to warpgroups: every product and every copy is another instruction
/// Improves on: in `both_ends` each warp of a walk reads all of K, Q, T and P of a chunk as fragments, and one chunk is
/// loaded ahead. The last kernel reads do, v_new and dv once per 64 columns of Dk.
/// Unchanged: what goes through memory but for its layout; both walks in one launch; what is rounded.
/// Equation: that of `tensor_core`. The last kernel computes dq and dk divided by scale, because dS in memory is divided
/// by scale.
/// Shapes: those of `tensor_core`. S^T and dS^T / scale [B, H, N, 64 ceil(Dv / 64), Dk] bf16 in memory are rows, for
/// bulk copies; prepare_tiles() leaves -T and P as rows.
/// Thread mapping: in the walks, block (walk and tile of 64 columns of Dv, h, b) has a warpgroup for the chain. Of the
/// other warpgroup one thread loads, one stores states, and one stores v_new or dV. In the last kernel, block (chunk, h,
/// b) has a warpgroup for dQ and one for dK.
/// Synchronization: a chunk's tiles are free (`empty`) when the chain has waited for its last product. What is stored
/// has one place in shared memory for states and one for rows, each with its own pair of barriers.
/// Resources: at Dk = Dv = 128 a walk has three chunks of 64 KB and 24 KB for what is stored, one block per
/// multiprocessor; the last kernel has 112 KB and 128 registers per thread, two blocks.
/// Work: that of `tensor_core`, but products with the zeros above a diagonal are not skipped, except a quarter of T in
/// the walk from the beginning.
/// Bytes: per position at Dk = Dv = 128, 896 in prepare_tiles(), 1536 and 1920 in the walks, if the tiles of Dv share
/// what they read, and 2816 in the last kernel: 7.2 KB.
/// Bound by: the memory's bandwidth with many chunks, the chain with few.
/// Requires: compute capability 9.0, Dk and Dv multiples of 16, up to 128, tensors that a tensor map can describe, keys
/// of length 1.
/// Weakness: S and dS of every chunk cross device memory. There are two blocks per head and tile of Dv in the walks, so
/// fewer than 33 heads of 128 columns leave multiprocessors idle.
/// Sources: as `tensor_core` and `warpgroup_chain`.

#include <cuda_runtime.h>

#include <string>

#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/forward_arguments.cuh"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 3;          // chunks in a walk's shared memory
constexpr int kBlockThreads = 2 * kWarpgroup;     // threads of each kernel's block
constexpr int kColumns = kWarpgroupColumns;  // of a walk's block

/// A chunk in shared memory for either walk, in which V stands for V or dO. The walk from the beginning has no use for Q
/// and P.
template <class Shape>
struct WalkTiles : ChunkTiles<Shape> {
  SquarePanel T_high, T_low, P;  // -T in two bf16

  static constexpr int kBytes = ChunkTiles<Shape>::kBytes + 3 * int(SquarePanel::kPanelBytes);

  __device__ __forceinline__ explicit WalkTiles(unsigned char* memory)
      : ChunkTiles<Shape>(memory),
        T_high{reinterpret_cast<__nv_bfloat16*>(memory + ChunkTiles<Shape>::kBytes)},
        T_low{T_high.data + SquarePanel::kPanelElements},
        P{T_low.data + SquarePanel::kPanelElements} {}
};

/// What a walk stores of a chunk: 64 columns of a state, as rows, and of v_new or dV.
template <class Shape>
struct StoredTiles {
  PanelTile<Shape::kDk> state;
  ValuePanel rows;

  static constexpr int kBytes = kColumns * (Shape::kDk + kChunk) * int(sizeof(__nv_bfloat16));

  __device__ __forceinline__ explicit StoredTiles(unsigned char* memory)
      : state{reinterpret_cast<__nv_bfloat16*>(memory)}, rows{state.data + kColumns * Shape::kDk} {}
};

template <class Shape>
constexpr std::size_t kWalkBytes = kPipelineDepth* WalkTiles<Shape>::kBytes + StoredTiles<Shape>::kBytes;

/// The tensors of both walks.
struct WalkMaps {
  TensorMap k;
  TensorMap v, T, v_new, S;       // from the beginning
  TensorMap q, d_o, TP, dv, dS;   // from the end
};

/// The barriers of a walk.
struct WalkBarriers {
  Barrier full[kPipelineDepth], empty[kPipelineDepth];
  Barrier state_full[1], state_empty[1], rows_full[1], rows_empty[1];
};

/// A warp has written its part of a tile that is stored by a bulk copy. Called by all lanes.
__device__ __forceinline__ void pass_to_copies(Barrier& barrier) {
  fence_async_proxy();
  __syncwarp();
  if (lane_index() == 0) barrier.arrive();
}

/// The walk from the beginning, by a warpgroup.
template <class Shape>
__device__ __forceinline__ void walk_forwards(const Bf16BackwardArguments& g, int N, int first, unsigned char* memory,
                                              const StoredTiles<Shape>& stored, WalkBarriers& barriers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  WarpgroupState<Shape::kDk> S;
  load_group_state<Shape::kDk>(S, g.initial_state.data ? g.initial_state.row(b, h, 0) + first : nullptr,
                               g.initial_state.stride_l, g.Dk, g.Dv - first);
  RoundedState<Shape::kDk> s;
  WarpgroupColumns residual, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_values();
  auto ring = Ring<kPipelineDepth>::consumer();
  auto stored_ring = Ring<1>::producer();
  for (int n = 0; n < N; ++n) {
    const WalkTiles<Shape> tiles(memory + ring.stage() * WalkTiles<Shape>::kBytes);
    round_state<Shape::kDk>(s, S);
    ring.wait(barriers.full);
    load_signed_values(residual, tiles.V, unit, kMinus);
    wgmma_fence(residual, s);
    start_residual<Shape::kDk>(residual, s, tiles.K);
    wgmma_commit();
    stored_ring.wait(barriers.state_empty);
    put_fragments(stored.state, s);
    pass_to_copies(barriers.state_full[0]);
    wgmma_wait<0>(residual);

    round_columns(factor, residual);
    wgmma_fence(v_new, factor);
    start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(v_new);

    round_columns(factor, v_new);
    wgmma_fence(S, factor);
    start_state_update<Shape::kDk>(S, factor, tiles.K);
    wgmma_commit();
    stored_ring.wait(barriers.rows_empty);
    put_output(stored.rows, v_new, 1);
    pass_to_copies(barriers.rows_full[0]);
    wgmma_wait<0>(S);
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
    stored_ring.advance();
  }
}

/// X^T = dO^T P.
__device__ __forceinline__ void start_transposed_scores(WarpgroupColumns& X, const ValuePanel& dO,
                                                        const SquarePanel& P) {
  const auto o = k_from_row_to_row(dO), p = k_from_row_to_row(P);
#pragma unroll
  for (int t = 0; t < kChunk; t += 16) wgmma<kChunk>(X, o.along_k(t), p.along_k(t), t > 0);
}

/// dV^T = X^T T, with the sign of the T in shared memory.
__device__ __forceinline__ void start_value_gradients(WarpgroupColumns& dV, const WarpgroupFragments& X,
                                                      const SquarePanel& T_high, const SquarePanel& T_low) {
  const auto high = k_from_row_to_row(T_high), low = k_from_row_to_row(T_low);
#pragma unroll
  for (int t = 0; t < kChunk; t += 16) {
    wgmma<kChunk>(dV, X[t / 16], high.along_k(t), t > 0);
    wgmma<kChunk>(dV, X[t / 16], low.along_k(t), true);
  }
}

/// The walk from the end, by a warpgroup.
template <class Shape>
__device__ __forceinline__ void walk_backwards(const Bf16BackwardArguments& g, int N, int first, unsigned char* memory,
                                               const StoredTiles<Shape>& stored, WalkBarriers& barriers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  WarpgroupState<Shape::kDk> S;  // dS / scale
  load_group_state<Shape::kDk>(S, g.dfinal_state.data ? g.dfinal_state.row(b, h, 0) + first : nullptr,
                               g.dfinal_state.stride_l, g.Dk, g.Dv - first);
#pragma unroll
  for (float& element : S) element /= g.scale;
  RoundedState<Shape::kDk> s;
  WarpgroupColumns X, dV;  // dV with the opposite sign, divided by scale
  WarpgroupFragments factor;
  auto ring = Ring<kPipelineDepth>::consumer();
  auto stored_ring = Ring<1>::producer();
  for (int n = 0; n < N; ++n) {
    const WalkTiles<Shape> tiles(memory + ring.stage() * WalkTiles<Shape>::kBytes);
    round_state<Shape::kDk>(s, S);
    ring.wait(barriers.full);
    wgmma_fence(X, s, S);
    start_transposed_scores(X, tiles.V, tiles.P);
    start_residual<Shape::kDk>(X, s, tiles.K);
    wgmma_commit();
    start_state_update<Shape::kDk>(S, tiles.V, tiles.Q);
    wgmma_commit();
    stored_ring.wait(barriers.state_empty);
    put_fragments(stored.state, s);
    pass_to_copies(barriers.state_full[0]);
    wgmma_wait<1>(X);

    round_columns(factor, X);
    wgmma_fence(dV, factor);
    start_value_gradients(dV, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(S, dV);

    round_columns(factor, dV);
    wgmma_fence(S, factor);
    start_state_update<Shape::kDk>(S, factor, tiles.K);
    wgmma_commit();
    stored_ring.wait(barriers.rows_empty);
    put_output(stored.rows, dV, -g.scale);
    pass_to_copies(barriers.rows_full[0]);
    wgmma_wait<0>(S);
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
    stored_ring.advance();
  }
  if (g.dinitial_state.data) {
#pragma unroll
    for (float& element : S) element *= g.scale;
    store_group_state<Shape::kDk>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk,
                                  g.Dv - first);
  }
}

/// Grid (tiles of 64 columns of Dv for each walk, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    walks_kernel(Bf16BackwardArguments g, const __grid_constant__ WalkMaps maps, int N) {
  __shared__ WalkBarriers barriers;
  const int tiles = int(gridDim.x) / 2, tile = int(blockIdx.x) % tiles, first = tile * kColumns;
  const bool is_reversed = int(blockIdx.x) >= tiles;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const StoredTiles<Shape> stored(memory + kPipelineDepth * WalkTiles<Shape>::kBytes);
  if (threadIdx.x == 0) {
    for (Barrier& barrier : barriers.full) barrier.init(1);
    for (Barrier& barrier : barriers.empty) barrier.init(4);
    barriers.state_full[0].init(4), barriers.state_empty[0].init(1);
    barriers.rows_full[0].init(4), barriers.rows_empty[0].init(1);
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kWarpgroup) {
    is_reversed ? walk_backwards<Shape>(g, N, first, memory, stored, barriers)
                : walk_forwards<Shape>(g, N, first, memory, stored, barriers);
    return;
  }
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  const auto chunk = [&](int i) { return is_reversed ? N - 1 - i : i; };
  if (threadIdx.x == 0) {
    auto ring = Ring<kPipelineDepth>::producer();
    for (int i = 0; i < N; ++i) {
      const WalkTiles<Shape> to(memory + ring.stage() * WalkTiles<Shape>::kBytes);
      const int n = chunk(i), t = n * kChunk;
      Barrier& full = barriers.full[ring.stage()];
      ring.wait(barriers.empty);
      const int unused = int(to.Q.kPanelBytes) * Shape::kDk / 64 + int(SquarePanel::kPanelBytes);
      full.arrive_expect(unsigned(WalkTiles<Shape>::kBytes - (is_reversed ? 0 : unused)));
      load_panels(to.K, maps.k, full, {.position = t, .head = h, .batch = b});
      load_tile(is_reversed ? maps.TP : maps.T, to.T_high.data, full,
                {.position = n * kPreparedRows, .head = h, .batch = b});
      load_tile(is_reversed ? maps.d_o : maps.v, to.V.data, full,
                {.column = first, .position = t, .head = h, .batch = b});
      if (is_reversed) load_panels(to.Q, maps.q, full, {.position = t, .head = h, .batch = b});
      ring.advance();
    }
  } else if (threadIdx.x == 32) {
    auto ring = Ring<1>::consumer();
    for (int i = 0; i < N; ++i) {
      ring.wait(barriers.state_full);
      const int row = (chunk(i) * tiles + tile) * kColumns;
      for (int panel = 0; panel < Shape::kDk / 64; ++panel) {
        store_tile(is_reversed ? maps.dS : maps.S, stored.state.data + panel * stored.state.kPanelElements,
                   {.column = panel * 64, .position = row, .head = h, .batch = b});
      }
      commit_stores();
      wait_stores_read<0>();
      barriers.state_empty[0].arrive();
      ring.advance();
    }
  } else if (threadIdx.x == 64) {
    auto ring = Ring<1>::consumer();
    for (int i = 0; i < N; ++i) {
      ring.wait(barriers.rows_full);
      store_tile(is_reversed ? maps.dv : maps.v_new, stored.rows.data,
                 {.column = first, .position = chunk(i) * kChunk, .head = h, .batch = b});
      commit_stores();
      wait_stores_read<0>();
      barriers.rows_empty[0].arrive();
      ring.advance();
    }
  }
}

/// The tensors of the last kernel.
struct GradientMaps {
  TensorMap q, k, d_o, v_new, dv, S, dS, dq, dk;
};

/// A chunk in shared memory.
template <int kDk, int kDv>
struct GradientTiles {
  PanelTile<kDk, kDv> state;    // S^T, later dS^T
  PanelTile<kDv> dO, dV, v_new;  // the scores take the place of dO and dV
  PanelTile<kDk> Q, K;          // dQ and dK take their places

  static constexpr int kStateBytes = kDk * kDv * int(sizeof(__nv_bfloat16));
  static constexpr int kRowsBytes = kChunk * kDv * int(sizeof(__nv_bfloat16));
  static constexpr int kKeysBytes = kChunk * kDk * int(sizeof(__nv_bfloat16));
  static constexpr int kBytes = kStateBytes + 3 * kRowsBytes + 2 * kKeysBytes;

  __device__ __forceinline__ explicit GradientTiles(__nv_bfloat16* memory)
      : state{memory},
        dO{memory + kDk * kDv},
        dV{dO.data + kChunk * kDv},
        v_new{dV.data + kChunk * kDv},
        Q{v_new.data + kChunk * kDv},
        K{Q.data + kChunk * kDk} {}
};

/// O += X S^T, or O = X S^T. @param S its transpose
template <int kDk, int kDv>
__device__ __forceinline__ void start_product_with_state(float (&O)[kDk / 2], const PanelTile<kDv>& X,
                                                         const PanelTile<kDk, kDv>& S, bool accumulate) {
  const auto x = k_along_rows(X);
  const auto s = k_from_row_to_row(S);
#pragma unroll
  for (int j = 0; j < kDv; j += 16) wgmma<kDk>(O, x.along_k(j), s.along_k(j), accumulate || j > 0);
}

/// O += Y K. @param Y the scores of a chunk, or their transpose
template <int kDk, Major kMajor>
__device__ __forceinline__ void start_product_with_scores(float (&O)[kDk / 2], const SharedFactor<kMajor>& Y,
                                                          const PanelTile<kDk>& K) {
  const auto k = k_from_row_to_row(K);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kDk>(O, Y.along_k(i), k.along_k(i), true);
}

/// The barriers of the last kernel. `state_full` has a phase for S and one for dS.
struct GradientBarriers {
  Barrier rows_full, state_full, keys_full;
};

/// Numbers of named barriers: of the block, and the first of those of its warpgroups.
constexpr unsigned kWholeBlock = 1, kOwnGroup = 2;

/// dQ or dK of a chunk, by a warpgroup. dbeta comes with dK.
/// @param load_state loads a state into its tile
/// @param beta [B, H, L], at least kLeastBeta
template <int kDk, int kDv, bool kIsDk, class LoadState>
__device__ __forceinline__ void compute_gradient(const Bf16BackwardArguments& g, const View<const float>& beta,
                                                 const GradientMaps& maps, const GradientTiles<kDk, kDv>& tiles,
                                                 GradientBarriers& barriers, LoadState load_state) {
  const int t = int(blockIdx.x) * kChunk, h = int(blockIdx.y), b = int(blockIdx.z);
  const PanelTile<kDv> X = kIsDk ? tiles.dV : tiles.dO;
  const SquarePanel Y{tiles.dO.data}, Z{tiles.dV.data};  // Z with the opposite sign; both divided by scale
  const float factor = kIsDk ? -1 / g.scale : 1;
  WarpgroupFragments y;  // Y or Z
  {
    WarpgroupScores scores;
    barriers.rows_full.wait(0);
    wgmma_fence(scores);
    start_scores(scores, X, tiles.v_new);
    wgmma_commit();
    wgmma_wait<0>(scores);
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) {
      const int row = wgmma_row(i), column = wgmma_column(i);
      if (kIsDk && column == row && t + row < g.L) {
        const float x = load_global(beta.row(b, h, t + row));
        store_global(g.dbeta.row(b, h, t + row), scores[i] / (x * x));
      }
      scores[i] = (kIsDk ? column < row : column <= row) ? factor * scores[i] : 0;
    }
    round_columns(y, scores);
  }
  float sums[kDk / 2];  // the gradient, divided by scale
  barriers.state_full.wait(0);
  wgmma_fence(sums);
  start_product_with_state<kDk, kDv>(sums, X, tiles.state, false);
  wgmma_commit();
  wgmma_wait<0>(sums);
#pragma unroll
  for (int i = 0; i < kDk / 2; ++i) sums[i] *= factor;
  wait_at_named_barrier(kOwnGroup + kIsDk, kWarpgroup);  // all warps have read X
  put_fragments(kIsDk ? Z : Y, y);
  fence_async_proxy();
  wait_at_named_barrier(kWholeBlock, kBlockThreads);  // Y and Z are there, and S is no longer needed
  if (!kIsDk && threadIdx.x == 0) load_state(maps.dS);
  barriers.keys_full.wait(0);
  wgmma_fence(sums);
  if constexpr (kIsDk) {
    start_product_with_scores(sums, k_along_rows(Z), tiles.K);       // -Z K
    start_product_with_scores(sums, k_from_row_to_row(Z), tiles.K);  // -Z^T K
    start_product_with_scores(sums, k_from_row_to_row(Y), tiles.Q);  // Y^T Q
    wgmma_commit();
    wgmma_wait<0>(sums);
    barriers.state_full.wait(1);
    wgmma_fence(sums);
    start_product_with_state<kDk, kDv>(sums, tiles.v_new, tiles.state, true);
  } else {
    start_product_with_scores(sums, k_along_rows(Y), tiles.K);  // Y K
  }
  wgmma_commit();
  wgmma_wait<0>(sums);
#pragma unroll
  for (int i = 0; i < kDk / 2; ++i) sums[i] *= g.scale;
  wait_at_named_barrier(kWholeBlock, kBlockThreads);  // Q and K are no longer needed
  const PanelTile<kDk> gradient = kIsDk ? tiles.K : tiles.Q;
  put_rows(gradient, sums);
  fence_async_proxy();
  wait_at_named_barrier(kOwnGroup + kIsDk, kWarpgroup);
  if (threadIdx.x % kWarpgroup == 0) {
    for (int panel = 0; panel < kDk / 64; ++panel) {
      store_tile(kIsDk ? maps.dk : maps.dq, gradient.data + panel * gradient.kPanelElements,
                 {.column = panel * 64, .position = t, .head = h, .batch = b});
    }
    commit_stores();
    wait_stores_read<0>();
  }
}

/// Grid (chunks, H, B). The first warpgroup computes dQ, the second one dK and dbeta.
/// @param beta [B, H, L], at least kLeastBeta
template <int kDk, int kDv>
__global__ void __launch_bounds__(kBlockThreads, 2)
    gradients_kernel(Bf16BackwardArguments g, View<const float> beta, const __grid_constant__ GradientMaps maps) {
  using Tiles = GradientTiles<kDk, kDv>;
  __shared__ GradientBarriers barriers;
  const int n = int(blockIdx.x), h = int(blockIdx.y), b = int(blockIdx.z);
  const Tiles tiles(dynamic_shared<__nv_bfloat16, kTileAlignment>());
  const auto load_state = [&](const TensorMap& map) {
    barriers.state_full.arrive_expect(Tiles::kStateBytes);
    load_panels(tiles.state, map, barriers.state_full, {.position = n * kDv, .head = h, .batch = b});
  };
  if (threadIdx.x == 0) {
    barriers.rows_full.init(1), barriers.state_full.init(1), barriers.keys_full.init(1);
    fence_barrier_init();
    const TileOrigin chunk{.position = n * kChunk, .head = h, .batch = b};
    barriers.rows_full.arrive_expect(3 * Tiles::kRowsBytes);
    load_panels(tiles.dO, maps.d_o, barriers.rows_full, chunk);
    load_panels(tiles.v_new, maps.v_new, barriers.rows_full, chunk);
    load_panels(tiles.dV, maps.dv, barriers.rows_full, chunk);
    load_state(maps.S);
    barriers.keys_full.arrive_expect(2 * Tiles::kKeysBytes);
    load_panels(tiles.K, maps.k, barriers.keys_full, chunk);
    load_panels(tiles.Q, maps.q, barriers.keys_full, chunk);
  }
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    compute_gradient<kDk, kDv, false>(g, beta, maps, tiles, barriers, load_state);
  } else {
    compute_gradient<kDk, kDv, true>(g, beta, maps, tiles, barriers, load_state);
  }
}

/// What the kernels pass on to each other in device memory, beside T and P. They also read dv, which is an output.
struct Workspace {
  std::int64_t rows;  // of all chunks' states, of a head: 64 for each 64 columns of Dv
  std::int64_t states, v_new, beta;  // bytes; dS takes as much as S

  explicit Workspace(const Bf16BackwardArguments& g)
      : rows(std::int64_t(ceil_div(g.L, kChunk)) * ceil_div(g.Dv, kColumns) * kColumns),
        states(std::int64_t(g.B) * g.H * rows * g.Dk * 2),
        v_new(std::int64_t(g.B) * g.H * g.L * g.Dv * 2),
        beta(std::int64_t(g.B) * g.H * g.L * 4) {}
  std::int64_t bytes() const { return 2 * states + v_new + beta; }
};

}  // namespace

void warpgroups_backward(const Bf16BackwardArguments& g) {
  const Workspace sizes(g);
  auto* memory = workspace<unsigned char>("delta_rule --backward: warpgroups", std::size_t(sizes.bytes()));
  const auto tensor = [&](std::int64_t offset, std::int64_t rows, int width) {
    return packed(reinterpret_cast<__nv_bfloat16*>(memory + offset), g.H, rows, width);
  };
  const View<__nv_bfloat16> S = tensor(0, sizes.rows, g.Dk), dS = tensor(sizes.states, sizes.rows, g.Dk);
  const View<__nv_bfloat16> v_new = tensor(2 * sizes.states, g.L, g.Dv);
  auto* beta = reinterpret_cast<float*>(memory + 2 * sizes.states + sizes.v_new);
  const Bf16Arguments a = forward_with_least_beta(g, beta);
  const PreparedTiles prepared = prepare_tiles(a);
  end_part("prepare");

  const TensorSizes keys = tensor_sizes(g, g.Dk), values = tensor_sizes(g, g.Dv);
  const TensorSizes states{g.B, g.H, sizes.rows, g.Dk};
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(g.H), unsigned(g.B)); };
  const auto walk = [&]<class Shape>(Shape) {
    launch(walks_kernel<Shape>, {grid(2 * ceil_div(g.Dv, kColumns)), unsigned(kBlockThreads), kWalkBytes<Shape>}, g,
           WalkMaps{.k = tile_map(g.k, keys, kChunk),
                    .v = tile_map(g.v, values, kChunk),
                    .T = map_of(prepared, a, 2 * kChunk),
                    .v_new = tile_map(v_new, values, kChunk),
                    .S = tile_map(S, states, kColumns),
                    .q = tile_map(g.q, keys, kChunk),
                    .d_o = tile_map(g.d_o, values, kChunk),
                    .TP = map_of(prepared, a),
                    .dv = tile_map(g.dv, values, kChunk),
                    .dS = tile_map(dS, states, kColumns)},
           prepared.N);
  };
  g.Dk <= 64 ? walk(PanelShape<64, kColumns>()) : walk(PanelShape<128, kColumns>());
  end_part("walks");

  const auto compute_gradients = [&]<int kDk, int kDv>() {
    launch(gradients_kernel<kDk, kDv>, {grid(prepared.N), unsigned(kBlockThreads), GradientTiles<kDk, kDv>::kBytes}, g, a.beta,
           GradientMaps{.q = tile_map(g.q, keys, kChunk),
                        .k = tile_map(g.k, keys, kChunk),
                        .d_o = tile_map(g.d_o, values, kChunk),
                        .v_new = tile_map(v_new, values, kChunk),
                        .dv = tile_map(g.dv, values, kChunk),
                        .S = tile_map(S, states, kDv),
                        .dS = tile_map(dS, states, kDv),
                        .dq = tile_map(g.dq, keys, kChunk),
                        .dk = tile_map(g.dk, keys, kChunk)});
  };
  if (g.Dk <= 64) {
    g.Dv <= 64 ? compute_gradients.template operator()<64, 64>() : compute_gradients.template operator()<64, 128>();
  } else {
    g.Dv <= 64 ? compute_gradients.template operator()<128, 64>() : compute_gradients.template operator()<128, 128>();
  }
  end_part("gradients");
}

std::string warpgroups_backward_unsupported(const Bf16BackwardArguments& g) {
  if (const std::string reason = tensor_core_backward_unsupported(g); !reason.empty()) return reason;
  if (g.Dk > 128 || g.Dv > 128) return "Dk or Dv > 128: a chunk of the last kernel would not fit into shared memory";
  if (compute_capability() < 90) return "needs a GPU of compute capability 9.0, for bulk copies";
  const auto why_not = [&](const auto& view, int width) {
    return why_not_mapped(read_only(view), tensor_sizes(g, width), kChunk);
  };
  for (const std::string& reason :
       {why_not(g.q, g.Dk), why_not(g.k, g.Dk), why_not(g.dq, g.Dk), why_not(g.dk, g.Dk), why_not(g.v, g.Dv),
        why_not(g.d_o, g.Dv), why_not(g.dv, g.Dv)}) {
    if (!reason.empty()) return reason;
  }
  return "";
}

std::int64_t warpgroups_backward_memory(const Bf16BackwardArguments& g) {
  return prepared_tiles_memory(forward_of(g, nullptr)) + Workspace(g).bytes();
}

}  // namespace tutorial::delta_rule
