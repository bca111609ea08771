#pragma once
/// @file
/// The two walks of `--backward` by warpgroups, in one launch. A warpgroup has 64 columns of Dv of a head, and its
/// state transposed in the sums of a product:
///
///     from the beginning   -residual^T = S^T K^T - V^T      v_new^T = -residual^T (-T)^T   S^T += v_new^T K
///     from the end         X^T = dS^T K^T + dO^T P          -dV^T = X^T (-T)               dS^T += dO^T Q + (-dV^T) K
///
/// Each product's sums, rounded to bf16, are the left factor of the next one and stay in their registers. The right
/// factors are tiles as bulk copies bring them: a flag of the product says in which direction it reads a tile, so T and
/// P serve as they are, and transposed. Of the block's other warpgroup one thread loads, one stores states, and one
/// stores v_new or dV.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/delta_rule_backward/workspace_bytes.hpp"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
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

constexpr int kPipelineDepth = 3;             // chunks in a walk's shared memory
constexpr int kWalkThreads = 2 * kWarpgroup;  // of a walk's block
constexpr int kColumns = kWarpgroupColumns;   // of a walk's block

/// A chunk in shared memory for either walk, in which V stands for V or dO. The walk from the beginning has no use for
/// Q and P.
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
  TensorMap v, T, v_new, S;      // from the beginning
  TensorMap v_errors;            // what rounding leaves out of v_new, of chunks that are marked (alike_keys.cuh)
  TensorMap q, d_o, TP, dv, dS;  // from the end
};

/// The barriers of a walk.
struct WalkBarriers {
  Barrier full[kPipelineDepth], empty[kPipelineDepth];
  Barrier state_full[1], state_empty[1], rows_full[1], rows_empty[1];
  bool errors_follow;  ///< whether the rows after these are their rounding errors
};

constexpr unsigned kChain = 1;  ///< the named barrier of the warpgroup that walks

/// A warp has written its part of a tile that is stored by a bulk copy. Called by all lanes.
__device__ __forceinline__ void pass_to_copies(Barrier& barrier) {
  fence_async_proxy();
  __syncwarp();
  if (lane_index() == 0) barrier.arrive();
}

/// S^T += (what rounding leaves out of v_new^T) K. Called where the product with the rounded v_new is done. The errors take
/// the place of v_new.
template <int kDk>
__device__ __forceinline__ void add_errors_of_new_values(WarpgroupState<kDk>& S, WarpgroupColumns& v_new,
                                                         const PanelTile<kDk>& K) {
  WarpgroupFragments errors;
  keep_errors(v_new);
  round_columns(errors, v_new);
  wgmma_fence(S, errors);
  start_state_update<kDk>(S, errors, K);
  wgmma_commit();
  wgmma_wait<0>(S);
}

/// The walk from the beginning, by a warpgroup.
/// @tparam kEvery it passes on the states before chunks 0, kEvery, 2 kEvery ...
template <class Shape, int kEvery>
__device__ __forceinline__ void walk_forwards(const Bf16BackwardArguments& g, int N, int first, unsigned char* memory,
                                              const StoredTiles<Shape>& stored, WalkBarriers& barriers) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  WarpgroupState<Shape::kDk> S;
  load_group_state<Shape::kDk>(S, g.initial_state.data ? g.initial_state.row(b, h, 0) + first : nullptr,
                               g.initial_state.stride_l, g.Dk, g.Dv - first);
  RoundedState<Shape::kDk> s;
  WarpgroupColumns residual, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  auto ring = Ring<kPipelineDepth>::consumer();
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int n = 0; n < N; ++n) {
    const WalkTiles<Shape> tiles(memory + ring.stage() * WalkTiles<Shape>::kBytes);
    round_state<Shape::kDk>(s, S);
    ring.wait(barriers.full);
    load_signed_values(residual, tiles.V, unit, kMinus);
    const bool alike = is_marked(tiles.T_high);
    wgmma_fence(residual, s);
    start_residual<Shape::kDk>(residual, s, tiles.K);
    wgmma_commit();
    if (n % kEvery == 0) {
      state_ring.wait(barriers.state_empty);
      put_fragments(stored.state, s);
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
    start_state_update<Shape::kDk>(S, factor, tiles.K);
    wgmma_commit();
    rows_ring.wait(barriers.rows_empty);
    put_output(stored.rows, v_new, 1);
    if (threadIdx.x == kWarpgroup) barriers.errors_follow = alike;
    pass_to_copies(barriers.rows_full[0]);
    rows_ring.advance();
    wgmma_wait<0>(S);
    if (alike) {
      add_errors_of_new_values<Shape::kDk>(S, v_new, tiles.K);
      rows_ring.wait(barriers.rows_empty);
      put_output(stored.rows, v_new, 1);
      pass_to_copies(barriers.rows_full[0]);
      rows_ring.advance();
    }
    // V may be filled again: between the ordinary loads that have read it and this arrival is a fence_async_proxy(),
    // that of pass_to_copies().
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
  }
}

/// X^T = dO^T P, or X^T += dO^T P.
__device__ __forceinline__ void start_transposed_scores(WarpgroupColumns& X, const ValuePanel& dO, const SquarePanel& P,
                                                        bool accumulate = false) {
  const auto o = k_from_row_to_row(dO), p = k_from_row_to_row(P);
#pragma unroll
  for (int t = 0; t < kChunk; t += 16) wgmma<kChunk>(X, o.along_k(t), p.along_k(t), accumulate || t > 0);
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

/// X^T += dO^T (what rounding leaves out of P). The errors take the place of P, computed once more from Q K^T. Called
/// where the product with the rounded P is done.
/// @param decay decay(t, i): what of key i is left at query t
template <class Shape, class Decay>
__device__ __forceinline__ void add_errors_of_scores(WarpgroupColumns& X, const WalkTiles<Shape>& tiles, Decay decay) {
  WarpgroupScores scores;
  wgmma_fence(scores);
  start_scores(scores, tiles.Q, tiles.K);
  wgmma_commit();
  wgmma_wait<0>(scores);
#pragma unroll
  for (int i = 0; i < kChunk / 2; i += 2) {
    const int row = wgmma_row(i), column = wgmma_column(i);
    const auto* rounded = tiles.P.data + tiles.P.unit(row, column / 8 * 8) + column % 8;
    const float2 p = unpack(*reinterpret_cast<const std::uint32_t*>(rounded));
    scores[i] = column <= row ? decay(row, column) * scores[i] - p.x : 0;
    scores[i + 1] = column < row ? decay(row, column + 1) * scores[i + 1] - p.y : 0;
  }
  wait_at_named_barrier(kChain, kWarpgroup);  // all warps have read P, and their products have
  put_rows(tiles.P, scores);
  fence_async_proxy();
  wait_at_named_barrier(kChain, kWarpgroup);
  wgmma_fence(X);
  start_transposed_scores(X, tiles.V, tiles.P, true);
  wgmma_commit();
  wgmma_wait<0>(X);
}

/// dV^T += (what rounding leaves out of X^T) T. Called where the product with the rounded X is done. The errors take the
/// place of X.
__device__ __forceinline__ void add_errors_of_value_gradients(WarpgroupColumns& dV, WarpgroupColumns& X,
                                                              const SquarePanel& T_high) {
  WarpgroupFragments errors;
  keep_errors(X);
  round_columns(errors, X);
  wgmma_fence(dV, errors);
  const auto high = k_from_row_to_row(T_high);
#pragma unroll
  for (int t = 0; t < kChunk; t += 16) wgmma<kChunk>(dV, errors[t / 16], high.along_k(t), true);
  wgmma_commit();
  wgmma_wait<0>(dV);
}

/// The walk from the end, by a warpgroup.
/// @tparam kEvery it passes on the states after chunks kEvery - 1, 2 kEvery - 1, ... and after the last one
template <class Shape, int kEvery>
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
  auto state_ring = Ring<1>::producer(), rows_ring = state_ring;
  for (int n = N - 1; n >= 0; --n) {
    const WalkTiles<Shape> tiles(memory + ring.stage() * WalkTiles<Shape>::kBytes);
    round_state<Shape::kDk>(s, S);
    ring.wait(barriers.full);
    const bool alike = is_marked(tiles.T_high);
    wgmma_fence(X, s, S);
    start_transposed_scores(X, tiles.V, tiles.P);
    start_residual<Shape::kDk>(X, s, tiles.K);
    wgmma_commit();
    start_state_update<Shape::kDk>(S, tiles.V, tiles.Q);
    wgmma_commit();
    if (n % kEvery == kEvery - 1 || n == N - 1) {
      state_ring.wait(barriers.state_empty);
      put_fragments(stored.state, s);
      pass_to_copies(barriers.state_full[0]);
      state_ring.advance();
    }
    wgmma_wait<1>(X);
    if (alike) {
      wgmma_wait<0>(X, S);
      add_errors_of_scores(X, tiles, [](int, int) { return 1.0f; });
    }

    round_columns(factor, X);
    wgmma_fence(dV, factor);
    start_value_gradients(dV, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(S, dV);
    if (alike) add_errors_of_value_gradients(dV, X, tiles.T_high);

    round_columns(factor, dV);
    wgmma_fence(S, factor);
    start_state_update<Shape::kDk>(S, factor, tiles.K);
    wgmma_commit();
    rows_ring.wait(barriers.rows_empty);
    put_output(stored.rows, dV, -g.scale);
    pass_to_copies(barriers.rows_full[0]);
    wgmma_wait<0>(S);
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
    rows_ring.advance();
  }
  if (g.dinitial_state.data) {
#pragma unroll
    for (float& element : S) element *= g.scale;
    store_group_state<Shape::kDk>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk,
                                  g.Dv - first);
  }
}

/// Starts to load chunk n of the block's head. Called by one thread.
/// @param first the block's column of Dv
template <class Shape>
__device__ __forceinline__ void load_walk_chunk(const WalkTiles<Shape>& to, const WalkMaps& maps, Barrier& full, int n,
                                                int first, bool is_reversed) {
  const int h = int(blockIdx.y), b = int(blockIdx.z), t = n * kChunk;
  const int unused = int(to.Q.kPanelBytes) * Shape::kDk / 64 + int(SquarePanel::kPanelBytes);
  full.arrive_expect(unsigned(WalkTiles<Shape>::kBytes - (is_reversed ? 0 : unused)));
  load_panels(to.K, maps.k, full, {.position = t, .head = h, .batch = b});
  load_tile(is_reversed ? maps.TP : maps.T, to.T_high.data, full,
            {.position = n * kPreparedRows, .head = h, .batch = b});
  load_tile(is_reversed ? maps.d_o : maps.v, to.V.data, full, {.column = first, .position = t, .head = h, .batch = b});
  if (is_reversed) load_panels(to.Q, maps.q, full, {.position = t, .head = h, .batch = b});
}

/// What the thread does that stores the states of a walk. @param tile,tiles the block's number among those of its head
template <int kEvery, class Shape>
__device__ __forceinline__ void store_states(const TensorMap& map, const StoredTiles<Shape>& stored,
                                             WalkBarriers& barriers, int N, int tile, int tiles, bool is_reversed) {
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  auto ring = Ring<1>::consumer();
  const int states = (N - 1) / kEvery + 1;
  for (int i = 0; i < states; ++i) {
    ring.wait(barriers.state_full);
    const int number = is_reversed ? states - 1 - i : i, row = (number * tiles + tile) * kColumns;
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

/// What the thread does that stores v_new or dV, and rounding errors of v_new, as they come.
template <class Shape>
__device__ __forceinline__ void store_rows(const WalkMaps& maps, const StoredTiles<Shape>& stored,
                                           WalkBarriers& barriers, int N, int first, bool is_reversed) {
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  auto ring = Ring<1>::consumer();
  const auto store = [&](const TensorMap& map, int n) {
    store_tile(map, stored.rows.data, {.column = first, .position = n * kChunk, .head = h, .batch = b});
    commit_stores();
    wait_stores_read<0>();
    barriers.rows_empty[0].arrive();
    ring.advance();
  };
  for (int i = 0; i < N; ++i) {
    const int n = is_reversed ? N - 1 - i : i;
    ring.wait(barriers.rows_full);
    const bool errors_follow = !is_reversed && barriers.errors_follow;
    store(is_reversed ? maps.dv : maps.v_new, n);
    if (!errors_follow) continue;
    ring.wait(barriers.rows_full);
    store(maps.v_errors, n);
  }
}

/// May start early: what it does before it loads does not depend on the kernel before.
/// Grid (tiles of 64 columns of Dv for each walk, H, B).
template <class Shape, int kEvery>
__global__ void __launch_bounds__(kWalkThreads, 1)
    walks_kernel(Bf16BackwardArguments g, const __grid_constant__ WalkMaps maps, int N) {
  let_next_kernel_start();
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
    is_reversed ? walk_backwards<Shape, kEvery>(g, N, first, memory, stored, barriers)
                : walk_forwards<Shape, kEvery>(g, N, first, memory, stored, barriers);
    return;
  }
  if (threadIdx.x == 0) {
    wait_for_previous_kernel();  // T and P
    auto ring = Ring<kPipelineDepth>::producer();
    for (int i = 0; i < N; ++i) {
      ring.wait(barriers.empty);
      load_walk_chunk(WalkTiles<Shape>(memory + ring.stage() * WalkTiles<Shape>::kBytes), maps,
                      barriers.full[ring.stage()], is_reversed ? N - 1 - i : i, first, is_reversed);
      ring.advance();
    }
  } else if (threadIdx.x == 32) {
    store_states<kEvery>(is_reversed ? maps.dS : maps.S, stored, barriers, N, tile, tiles, is_reversed);
  } else if (threadIdx.x == 64) {
    store_rows(maps, stored, barriers, N, first, is_reversed);
  }
}

/// What the kernels pass on to each other in device memory, beside T and P. They also read dv, which is an output.
struct Workspace {
  View<__nv_bfloat16> v_new;     ///< [B, H, L, Dv]
  View<__nv_bfloat16> v_errors;  ///< the same: what rounding leaves out, in chunks that are marked (alike_keys.cuh)
  View<__nv_bfloat16> S, dS;     ///< [B, H, rows, Dk]: S^T and dS^T / scale, 64 ceil(Dv / 64) rows of each state
  TensorSizes states;            ///< their sizes
};

/// Blocks of both walks.
inline std::int64_t walk_blocks(const Bf16BackwardArguments& g) {
  return std::int64_t(g.B) * g.H * 2 * ceil_div(g.Dv, kColumns);
}
/// Whether kernels start before the kernel before has ended. Blocks that start early go to multiprocessors in the order
/// in which these become free. Where nearly all have a block of a walk, the usual order is faster.
inline bool start_early(const Bf16BackwardArguments& g) {
  return walk_blocks(g) <= multiprocessor_count() / 2;
}

/// Memory for it. @param every chunks from one state to the next
inline Workspace workspace_of(const Bf16BackwardArguments& g, const char* name, int every) {
  const WorkspaceBytes bytes(g, every);
  auto* memory = workspace<unsigned char>(name, std::size_t(bytes.all()));
  const auto tensor = [&](std::int64_t offset, std::int64_t rows, int width) {
    return packed(reinterpret_cast<__nv_bfloat16*>(memory + offset), g.H, rows, width);
  };
  return {.v_new = tensor(2 * bytes.states, g.L, g.Dv),
          .v_errors = tensor(2 * bytes.states + bytes.v_new, g.L, g.Dv),
          .S = tensor(0, bytes.rows, g.Dk),
          .dS = tensor(bytes.states, bytes.rows, g.Dk),
          .states = {g.B, g.H, bytes.rows, g.Dk}};
}

/// The tensors of both walks.
inline WalkMaps walk_maps(const Bf16BackwardArguments& g, const PreparedTiles& prepared, const Workspace& x) {
  const Bf16Arguments a = forward_of(g);
  const TensorSizes keys = tensor_sizes(g, g.Dk), values = tensor_sizes(g, g.Dv);
  return {.k = tile_map(g.k, keys, kChunk),
          .v = tile_map(g.v, values, kChunk),
          .T = map_of(prepared, a, 2 * kChunk),
          .v_new = tile_map(x.v_new, values, kChunk),
          .S = tile_map(x.S, x.states, kColumns),
          .v_errors = tile_map(x.v_errors, values, kChunk),
          .q = tile_map(g.q, keys, kChunk),
          .d_o = tile_map(g.d_o, values, kChunk),
          .TP = map_of(prepared, a),
          .dv = tile_map(g.dv, values, kChunk),
          .dS = tile_map(x.dS, x.states, kColumns)};
}

/// How both walks are launched.
inline LaunchConfig walk_launch(const Bf16BackwardArguments& g, std::size_t shared_bytes) {
  const int blocks = 2 * ceil_div(g.Dv, kColumns);  // of a head
  LaunchConfig config(dim3(unsigned(blocks), unsigned(g.H), unsigned(g.B)), unsigned(kWalkThreads), shared_bytes);
  config.starts_early = start_early(g);
  return config;
}

/// Starts both walks.
/// @tparam kEvery chunks from one state that is left to the next
/// @param name of the memory
template <int kEvery>
Workspace start_walks(const Bf16BackwardArguments& g, const PreparedTiles& prepared, const char* name) {
  const Workspace x = workspace_of(g, name, kEvery);
  const auto start = [&]<class Shape>(Shape) {
    launch(walks_kernel<Shape, kEvery>, walk_launch(g, kWalkBytes<Shape>), g, walk_maps(g, prepared, x), prepared.N);
  };
  g.Dk <= 64 ? start(PanelShape<64, kColumns>()) : start(PanelShape<128, kColumns>());
  end_part("walks");
  return x;
}

/// The tensors of the last kernel.
struct GradientMaps {
  TensorMap q, k, d_o, v_new, v_errors, dv, S, dS, dq, dk;

  /// @param rows positions of a tile that is loaded @param kDv rows of a state
  GradientMaps(const Bf16BackwardArguments& g, const Workspace& x, int rows, int kDv)
      : q(tile_map(g.q, tensor_sizes(g, g.Dk), rows)),
        k(tile_map(g.k, tensor_sizes(g, g.Dk), rows)),
        d_o(tile_map(g.d_o, tensor_sizes(g, g.Dv), rows)),
        v_new(tile_map(read_only(x.v_new), tensor_sizes(g, g.Dv), rows)),
        v_errors(tile_map(read_only(x.v_errors), tensor_sizes(g, g.Dv), kChunk)),
        dv(tile_map(read_only(g.dv), tensor_sizes(g, g.Dv), rows)),
        S(tile_map(read_only(x.S), x.states, kDv)),
        dS(tile_map(read_only(x.dS), x.states, kDv)),
        dq(tile_map(g.dq, tensor_sizes(g, g.Dk), kChunk)),
        dk(tile_map(g.dk, tensor_sizes(g, g.Dk), kChunk)) {}
};

/// O += X S^T, or O = X S^T.
/// @param X 64 rows, k along them @param S its transpose
template <int kDk, int kDv>
__device__ __forceinline__ void start_product_with_state(float (&O)[kDk / 2], const SharedFactor<Major::kK>& X,
                                                         const PanelTile<kDk, kDv>& S, bool accumulate) {
  const auto s = k_from_row_to_row(S);
#pragma unroll
  for (int j = 0; j < kDv; j += 16) wgmma<kDk>(O, X.along_k(j), s.along_k(j), accumulate || j > 0);
}

/// The diagonal's elements of the thread's two rows, and zeros where another lane has them: of the four lanes of a row
/// one has the element.
__device__ __forceinline__ void diagonal_of(float (&diagonal)[2], const WarpgroupScores& scores) {
  diagonal[0] = diagonal[1] = 0;
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    if (wgmma_column(i) == wgmma_row(i)) diagonal[i / 2 % 2] = scores[i];
  }
}

/// Loads beta of the thread's rows of the 64 positions from t on, if it has the diagonal's elements of these rows. To be
/// called long before store_beta_gradient(): it takes a trip to memory.
__device__ __forceinline__ void load_betas(float (&betas)[2], const Bf16BackwardArguments& g, int b, int h, int t) {
  const int lane = int(lane_index());
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = t + wgmma_row(2 * half);
    betas[half] = 1;
    if (lane / 8 != lane % 4 || position >= g.L) continue;
    betas[half] = __uint_as_float(load_early(reinterpret_cast<const std::uint32_t*>(g.beta.row(b, h, position))));
  }
}

/// Writes dbeta of the 64 positions from t on: the diagonal of dV v_new^T, divided by beta^2.
__device__ __forceinline__ void store_beta_gradient(const Bf16BackwardArguments& g, int b, int h, int t,
                                                    const WarpgroupScores& scores, const float (&betas)[2]) {
  float diagonal[2];
  diagonal_of(diagonal, scores);
  const int lane = int(lane_index());
  if (lane / 8 != lane % 4) return;  // another lane has the diagonal's element of these rows
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int position = t + wgmma_row(2 * half);
    if (position >= g.L) continue;
    const float x = fmaxf(betas[half], kLeastBeta);
    store_global(g.dbeta.row(b, h, position), diagonal[half] / (x * x));
  }
}

/// Calls f with the widths that hold Dk and Dv, 64 or 128 each: f.template operator()<kDk, kDv>().
template <class F>
void select_widths(const Bf16BackwardArguments& g, F f) {
  const auto select = [&]<int kDk>() {
    g.Dv <= 64 ? f.template operator()<kDk, 64>() : f.template operator()<kDk, 128>();
  };
  g.Dk <= 64 ? select.template operator()<64>() : select.template operator()<128>();
}

}  // namespace
}  // namespace tutorial::delta_rule
