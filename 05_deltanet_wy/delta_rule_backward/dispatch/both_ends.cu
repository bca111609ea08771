/// @file
/// `both_ends`: the two walks in one launch.
///
/// Idea: forwards the chain of a chunk is K S, T times the residual, and K^T v_new. From the end it is K dS, T^T times
/// dv_new, and K^T dV. Neither reads what the other writes: the recurrence for dS contains no S. So the walks need not
/// follow one another. One launch has the blocks of both; the first half of a head's blocks walks from the beginning,
/// the second half from the end.
/// Improves on: in `tensor_core` the second walk begins when the first has ended. A walk has ceil(Dv / 64) blocks per
/// head, which leaves multiprocessors without a block where there are few heads.
/// Unchanged: every product, what goes through memory, and the last kernel; but in chunks that are marked
/// (chunk/alike_keys.cuh) the walks also compute the products with rounding errors, and leave those of v_new.
/// Equation: that of `tensor_core`.
/// Shapes: those of `tensor_core`.
/// Thread mapping: block (walk and tile of 64 columns of Dv, h, b); which walk it is does not differ within a block.
/// Resources: per block the larger of what the two walks need. At Dk = 128 that is 118 KB of shared memory. Where a
/// block cannot have so much, as on RTX cards, it has the tiles of one chunk, 63 KB, and waits for its copies.
/// Work: that of `tensor_core`.
/// Bytes: those of `tensor_core`. Both walks read K and T of a chunk, but at the same time only in the middle of the
/// sequence.
/// Bound by: the longer walk, the one from the end, where all blocks are on the GPU at once; with many heads the bytes.
/// Requires: as `tensor_core`, but shared memory for the tiles of one chunk.
/// Weakness: S, dS and v_new still cross device memory.
/// Source: the equations; we know of no other description.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/gradient_walk_errors.cuh"
#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/delta_rule_backward/gradient_chunk.cuh"
#include "05_deltanet_wy/delta_rule_backward/gradient_walk.cuh"
#include "05_deltanet_wy/delta_rule_backward/workspace.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;  // tiles and states

constexpr int kColumns = 64;  // of a block
using ValueTile = SwizzledTile<kColumns>;

__host__ __device__ constexpr int column_tiles(int width) {
  return (width - 1) / kColumns + 1;
}

/// What the walk from the beginning reads of a chunk, in shared memory.
template <class Shape>
struct Tiles {
  uint4 T[2 * kBlockUnits];
  __nv_bfloat16 K[kChunk * Shape::kDk], V[kChunk * kColumns];
};

/// What the walk from the end reads.
template <class Shape>
struct GradientTiles {
  uint4 T[2 * kBlockUnits], P[kBlockUnits];
  __nv_bfloat16 K[kChunk * Shape::kDk], Q[kChunk * Shape::kDk], dO[kChunk * kColumns];
};

/// Shared memory of a walk: tiles of kDepth chunks, and rows on their way to device memory.
template <class Tiles, int kDepth>
constexpr std::size_t kWalkBytes = kDepth * sizeof(Tiles) + sizeof(__nv_bfloat16) * kChunk* kColumns;

/// The walk from the beginning. @param first the block's column of Dv
template <class Shape, int kDepth>
__device__ __forceinline__ void walk_forwards(const Bf16Arguments& a, const Workspace& x, int first) {
  constexpr int kDk = Shape::kDk;
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int columns = min(kColumns, a.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  auto* tiles = dynamic_shared<Tiles<Shape>>();  // kDepth
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + kDepth) + warp_index() * kChunk * 16;
  const auto load = [&](int n) {
    Tiles<Shape>& to = tiles[n % kDepth];
    const int t = n * kChunk, b = hide_from_compiler(int(blockIdx.z));
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * x.N + n;
    load_units_async<2 * kBlockUnits>(int(threadIdx.x), to.T, x.T + chunk * 2 * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.K}, a.k.row(b, h, t), a.k.stride_l, a.L - t, a.Dk);
    load_tile_async(ValueTile{to.V}, a.v.row(b, h, t) + first, a.v.stride_l, a.L - t, columns);
    cp_async_commit();
  };
  load(0);
  typename Shape::State S;
  load_state<Shape>(S, a.initial_state.data ? a.initial_state.row(b, h, 0) + first : nullptr, a.initial_state.stride_l,
                    a.Dk, columns);
  for (int n = 0; n < x.N; ++n) {
    cp_async_wait<0>();
    __syncthreads();
    if (kDepth == 2 && n + 1 < x.N) load(n + 1);
    Tiles<Shape>& from = tiles[n % kDepth];
    const SwizzledTile<kDk> K{from.K};
    uint4* states = fragments_of(x.S, a, (std::int64_t(b) * a.H + h) * x.N + n, a.Dk / 16, j);

    const auto pass_on_state = [&](int d, const uint4& s) {
      if (j < a.Dv && d * 16 < a.Dk) store_global(states + d * 32, s);
    };
    const bool alike = is_marked(from.T);
    WarpColumns v_new;
    WarpFragments v_errors;
    const auto pass_on_v_new = [&](int i, const uint4& two) { unpack_fragment(v_new, i, two); };
    const auto add_errors = [&](int i, float(&left)[4], float(&right)[4]) {
      if (!alike) return;
      v_errors[i] = errors_of(left, right);
      update_state<kDk>(S[0], K, v_errors[i], i);
    };
    WarpFragments residual;
    subtract_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], pass_on_state);
    add_v_new<kDk>(S[0], residual, from.T, K, pass_on_v_new, nullptr, add_errors);
    if constexpr (kDepth == 1) {
      __syncthreads();  // no warp reads the tiles any more
      if (n + 1 < x.N) load(n + 1);
    }
    const int t = n * kChunk;
    store_warp_output(x.v_new.row(b, h, t) + j, a.Dv, a.L - t, columns - warp_column, v_new, 1, staging);
    if (alike) {
#pragma unroll
      for (int i = 0; i < kBlocks; ++i) unpack_fragment(v_new, i, v_errors[i]);
      store_warp_output(x.v_errors.row(b, h, t) + j, a.Dv, a.L - t, columns - warp_column, v_new, 1, staging);
    }
  }
}

/// The walk from the end.
template <class Shape, int kDepth>
__device__ __forceinline__ void walk_backwards(const Bf16BackwardArguments& g, const Bf16Arguments& a,
                                               const Workspace& x, int first) {
  constexpr int kDk = Shape::kDk;
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int columns = min(kColumns, g.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  auto* tiles = dynamic_shared<GradientTiles<Shape>>();  // kDepth
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + kDepth) + warp_index() * kChunk * 16;
  const auto load = [&](int n) {
    GradientTiles<Shape>& to = tiles[n % kDepth];
    const int t = n * kChunk, b = hide_from_compiler(int(blockIdx.z));
    const std::int64_t chunk = (std::int64_t(b) * g.H + h) * x.N + n;
    load_units_async<2 * kBlockUnits>(int(threadIdx.x), to.T, x.T + chunk * 2 * kBlockUnits);
    load_units_async<kBlockUnits>(int(threadIdx.x), to.P, x.P + chunk * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.K}, g.k.row(b, h, t), g.k.stride_l, g.L - t, g.Dk);
    load_tile_async(SwizzledTile<kDk>{to.Q}, g.q.row(b, h, t), g.q.stride_l, g.L - t, g.Dk);
    load_tile_async(ValueTile{to.dO}, g.d_o.row(b, h, t) + first, g.d_o.stride_l, g.L - t, columns);
    cp_async_commit();
  };
  load(x.N - 1);
  typename Shape::State S;  // dS / scale
  load_state<Shape>(S, g.dfinal_state.data ? g.dfinal_state.row(b, h, 0) + first : nullptr, g.dfinal_state.stride_l,
                    g.Dk, columns);
  scale_state<Shape>(S, 1 / g.scale);
  for (int n = x.N - 1; n >= 0; --n) {
    cp_async_wait<0>();
    __syncthreads();
    if (kDepth == 2 && n > 0) load(n - 1);
    GradientTiles<Shape>& from = tiles[n % kDepth];
    const SwizzledTile<kDk> K{from.K}, Q{from.Q};
    uint4* states = fragments_of(x.dS, a, (std::int64_t(b) * g.H + h) * x.N + n, g.Dk / 16, j);

    WarpFragments outputs;  // dO^T
    load_transposed_values(outputs, ValueTile{from.dO}, warp_column);
    WarpColumns X = {}, dV = {};
    add_from_state(X, K, [&](int d) {
      if (j < g.Dv && d * 16 < g.Dk)
        store_global(states + d * 32, scaled_fragment(S[0][2 * d], S[0][2 * d + 1], g.scale));
      return rounded(S[0][2 * d], S[0][2 * d + 1]);
    });
    add_transposed_scores(X, outputs, from.P);
    if (is_marked(from.T)) add_errors_of_scores(X, outputs, from.P, Q, K);
    multiply_transposed(dV, X, from.T);
    if (is_marked(from.T)) multiply_errors_transposed(dV, X, from.T);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      update_state<kDk>(S[0], Q, outputs[i], i);
      update_state<kDk>(S[0], K, opposite(rounded(dV[2 * i], dV[2 * i + 1])), i);
    }
    if constexpr (kDepth == 1) {
      __syncthreads();
      if (n > 0) load(n - 1);
    }
    const int t = n * kChunk;
    store_warp_output(g.dv.row(b, h, t) + j, g.dv.stride_l, g.L - t, columns - warp_column, dV, g.scale, staging);
  }
  if (g.dinitial_state.data) {
    scale_state<Shape>(S, g.scale);
    store_state<Shape>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk, columns);
  }
}

/// Grid (tiles of Dv for each walk, H, B). @tparam kDepth chunks whose tiles a block has: two, or one
template <class Shape, int kDepth>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    walks_kernel(Bf16BackwardArguments g, Bf16Arguments a, Workspace x) {
  const int tiles = column_tiles(g.Dv), tile = int(blockIdx.x);
  if (tile < tiles) {
    walk_forwards<Shape, kDepth>(a, x, tile * kColumns);
  } else {
    walk_backwards<Shape, kDepth>(g, a, x, (tile - tiles) * kColumns);
  }
}

}  // namespace

void both_ends_backward(const Bf16BackwardArguments& g) {
  const Bf16Arguments a = forward_of(g);
  Workspace x = workspace_of(g, "delta_rule --backward: both_ends");
  const auto values = std::size_t(std::int64_t(g.B) * g.H * g.L * g.Dv);
  x.v_errors = packed(workspace<__nv_bfloat16>("delta_rule --backward: errors of v_new", values), g.H, g.L, g.Dv);
  select_shape(g.Dk, [&]<class Shape>(Shape) {
    const dim3 tiles(unsigned(2 * column_tiles(g.Dv)), unsigned(g.H), unsigned(g.B));
    constexpr std::size_t kTwo = kWalkBytes<GradientTiles<Shape>, 2>, kOne = kWalkBytes<GradientTiles<Shape>, 1>;
    if (shared_memory_missing(kTwo).empty()) {
      launch(walks_kernel<Shape, 2>, {tiles, kThreads, kTwo}, g, a, x);
    } else {
      launch(walks_kernel<Shape, 1>, {tiles, kThreads, kOne}, g, a, x);
    }
  });
  end_part("walks");
  start_gradients(g, x);
}

}  // namespace tutorial::delta_rule
