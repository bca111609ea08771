/// @file
/// Stage 4, `tensor_core`: the gradients of all chunks on tensor cores, too.
///
/// Idea: with S, dS, v_new and dV of a chunk, its gradients are a dozen products, and no element of them depends on
/// another one. A block takes 64 columns of Dk of a chunk. It loads the rows of dO, v_new, dV, Q and K once, as tiles in
/// shared memory, and all its warps read them as fragments. Of the states a warp needs only its own 16 columns, so it
/// loads them from memory as the walks have left them. They were written as A fragments of S^T, and are wanted as B
/// fragments of S^T: their blocks are transposed in registers. Y and Z are rounded to bf16 and become factors of the
/// products with K and Q.
///
/// dbeta is the diagonal of the product that Z comes from, so the function that masks Z also writes it.
/// Grows out of: 3_walks.cu
/// Improves on: the last kernel of `walks` loads two numbers for each multiply-add.
/// Unchanged: the walks, but dS is multiplied by scale before it is stored. Every line of the equations.
/// Equation: that of `walks`
///
///     Y = scale (dO v_new^T) . M,  Z = tril(dV v_new^T, -1)               gradients_kernel, all chunks
///     dQ = scale dO S^T + Y K,  dbeta_t = (dV v_new^T)_tt / beta_t^2
///     dK = v_new dS^T - dV S^T + Y^T Q - (Z + Z^T) K
///
/// Shapes: those of `walks`.
/// Thread mapping: the walks as they were. In gradients_kernel, block (chunk and tile of 64 columns of Dk, h, b) has
/// four warps with 16 of these columns each.
/// Resources: at Dk = Dv = 128 a walk has 118 KB of shared memory, the last kernel 80 KB.
/// Work: that of prepare(), and per position 16 Dk Dv + 320 Dk + 400 Dv + 160 Dv ceil(Dk / 64) operations, in tiles of
/// 16. T counts twice in each of its products.
/// Bytes: tensor_core_backward_bytes_moved() has the formula. At Dk = Dv = 128 that is 9.3 KB per position, where q, k,
/// v, do and the gradients are 1.8 KB.
/// Bound by: the walks, whose chunks follow one another; with many heads the bytes.
/// Requires: as `walks`.
/// Weakness: S, dS and v_new cross device memory, and the second walk begins when the first has ended, though neither
/// reads what the other writes.
/// Source: arXiv 2406.06484, section 3.2. The backward pass of `chunk_delta_rule` in flash-linear-attention is cut in a
/// similar way.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/delta_rule_backward/gradient_chunk.cuh"
#include "05_deltanet_wy/delta_rule_backward/gradient_walk.cuh"
#include "05_deltanet_wy/delta_rule_backward/workspace.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
#include "common/tile/chunk_products.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;  // tiles and states

constexpr int kColumns = 64;  // of a block
using ValueTile = SwizzledTile<kColumns>;

__host__ __device__ constexpr int column_tiles(int width) {
  return (width - 1) / kColumns + 1;
}

/// What a walk reads of a chunk, in shared memory. V stands for V or dO; the walk from the beginning needs neither P nor
/// Q.
template <class Shape>
struct Tiles {
  uint4 T[2 * kBlockUnits], P[kBlockUnits];
  __nv_bfloat16 K[kChunk * Shape::kDk], V[kChunk * kColumns], Q[kChunk * Shape::kDk];
};

template <class Shape>
constexpr std::size_t kSharedBytes = 2 * sizeof(Tiles<Shape>) + sizeof(__nv_bfloat16) * kChunk* kColumns;

/// The walk from the beginning. Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) states_kernel(Bf16Arguments a, Workspace x) {
  constexpr int kDk = Shape::kDk;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kColumns;
  const int columns = min(kColumns, a.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  auto* tiles = dynamic_shared<Tiles<Shape>>();  // two
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + 2) + warp_index() * kChunk * 16;
  const auto load = [&](int n) {
    Tiles<Shape>& to = tiles[n % 2];
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
    if (n + 1 < x.N) load(n + 1);
    Tiles<Shape>& from = tiles[n % 2];
    const SwizzledTile<kDk> K{from.K};
    uint4* states = fragments_of(x.S, a, (std::int64_t(b) * a.H + h) * x.N + n, a.Dk / 16, j);

    const auto pass_on_state = [&](int d, const uint4& s) {
      if (j < a.Dv && d * 16 < a.Dk) store_global(states + d * 32, s);
    };
    WarpColumns v_new;
    const auto pass_on_v_new = [&](int i, const uint4& two) { unpack_fragment(v_new, i, two); };
    WarpFragments residual;
    subtract_product<kDk>(residual, ValueTile{from.V}, warp_column, K, S[0], pass_on_state);
    add_v_new<kDk>(S[0], residual, from.T, K, pass_on_v_new);
    const int t = n * kChunk;
    store_warp_output(x.v_new.row(b, h, t) + j, a.Dv, a.L - t, columns - warp_column, v_new, 1, staging);
  }
}

/// The walk from the end. Grid (tiles of Dv, H, B).
/// @param a the operator's arguments
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    gradient_states_kernel(Bf16BackwardArguments g, Bf16Arguments a, Workspace x) {
  constexpr int kDk = Shape::kDk;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kColumns;
  const int columns = min(kColumns, g.Dv - first), warp_column = warp_index() * 16, j = first + warp_column;
  auto* tiles = dynamic_shared<Tiles<Shape>>();  // two
  auto* staging = reinterpret_cast<__nv_bfloat16*>(tiles + 2) + warp_index() * kChunk * 16;
  const auto load = [&](int n) {
    Tiles<Shape>& to = tiles[n % 2];
    const int t = n * kChunk, b = hide_from_compiler(int(blockIdx.z));
    const std::int64_t chunk = (std::int64_t(b) * g.H + h) * x.N + n;
    load_units_async<2 * kBlockUnits>(int(threadIdx.x), to.T, x.T + chunk * 2 * kBlockUnits);
    load_units_async<kBlockUnits>(int(threadIdx.x), to.P, x.P + chunk * kBlockUnits);
    load_tile_async(SwizzledTile<kDk>{to.K}, g.k.row(b, h, t), g.k.stride_l, g.L - t, g.Dk);
    load_tile_async(SwizzledTile<kDk>{to.Q}, g.q.row(b, h, t), g.q.stride_l, g.L - t, g.Dk);
    load_tile_async(ValueTile{to.V}, g.d_o.row(b, h, t) + first, g.d_o.stride_l, g.L - t, columns);
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
    if (n > 0) load(n - 1);
    Tiles<Shape>& from = tiles[n % 2];
    const SwizzledTile<kDk> K{from.K}, Q{from.Q};
    uint4* states = fragments_of(x.dS, a, (std::int64_t(b) * g.H + h) * x.N + n, g.Dk / 16, j);

    WarpFragments outputs;  // dO^T
    load_transposed_values(outputs, ValueTile{from.V}, warp_column);
    WarpColumns X = {}, dV = {};
    add_from_state(X, K, [&](int d) {
      if (j < g.Dv && d * 16 < g.Dk)
        store_global(states + d * 32, scaled_fragment(S[0][2 * d], S[0][2 * d + 1], g.scale));
      return rounded(S[0][2 * d], S[0][2 * d + 1]);
    });
    add_transposed_scores(X, outputs, from.P);
    multiply_transposed(dV, X, from.T);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      update_state<kDk>(S[0], Q, outputs[i], i);
      update_state<kDk>(S[0], K, opposite(rounded(dV[2 * i], dV[2 * i + 1])), i);
    }
    const int t = n * kChunk;
    store_warp_output(g.dv.row(b, h, t) + j, g.dv.stride_l, g.L - t, columns - warp_column, dV, g.scale, staging);
  }
  if (g.dinitial_state.data) {
    scale_state<Shape>(S, g.scale);
    store_state<Shape>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk, columns);
  }
}

/// The scores times a factor, or what rounding leaves out of them.
struct Scaled : NoEpilogue {
  float scale;
  bool only_errors;

  explicit __device__ Scaled(float scale, bool only_errors = false) : scale(scale), only_errors(only_errors) {}
  __device__ float score(int, int, float x) const {
    return scale * x - (only_errors ? float(__nv_bfloat16(scale * x)) : 0);
  }
};

/// Below the diagonal the scores with the opposite sign; on it dbeta.
struct Negated : NoEpilogue {
  const float* beta;  // of the chunk
  float* dbeta;       // of the chunk; null: another block writes it
  std::int64_t beta_stride, dbeta_stride;
  int rows;  // of the chunk that exist

  __device__ float score(int t, int i, float product) const {
    if (t == i && dbeta && t < rows) {
      const float x = fmaxf(load_global(beta + t * beta_stride), kLeastBeta);
      store_global(dbeta + t * dbeta_stride, product / (x * x));
    }
    return t == i ? 0.0f : -product;
  }
};

/// A block's tiles; Shape::kDk columns hold all of Dv.
template <class Shape>
struct ChunkTilesOf {
  __nv_bfloat16 dO[kChunk * Shape::kDk], dV[kChunk * Shape::kDk], v_new[kChunk * Shape::kDk];
  __nv_bfloat16 Q[kChunk * kColumns], K[kChunk * kColumns], Y[kChunk * kChunk], Z[kChunk * kChunk];
};

/// O += X S^T, the warp's columns.
/// @param states S's fragments for the warp's 16 columns and the first 16 of Dv
/// @param stride from these to those of the next 16 of Dv @param count 16 times this is Dv
template <class Shape>
__device__ __forceinline__ void add_from_fragments(typename Shape::Output& O, const typename Shape::KeyTile& X,
                                                   const uint4* states, std::int64_t stride, int count) {
  const int lane = fresh_lane(), unit = X.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int j = 0; j < Shape::kDk / 16; ++j) {
    const uint4 s[] = {j < count ? load_global(states + j * stride) : uint4{}};
    delta_rule::add_from_fragments<Shape>(O, X, unit, j, s);
  }
}

/// Grid (chunks and tiles of Dk, H, B). @tparam Shape its keys are the columns of Dv, its values 64 columns of Dk
template <class Shape>
__global__ void __launch_bounds__(kThreads) gradients_kernel(Bf16BackwardArguments g, Workspace x) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), key_tiles = column_tiles(g.Dk);
  const int n = int(blockIdx.x) / key_tiles, first = int(blockIdx.x) % key_tiles * kColumns;
  const int t = n * kChunk, rows = g.L - t, columns = min(kColumns, g.Dk - first);
  auto* memory = dynamic_shared<ChunkTilesOf<Shape>>();
  const std::int64_t chunk = (std::int64_t(b) * g.H + h) * x.N + n, stride = g.Dk / 16 * 32;
  const bool alike = x.v_errors.data && is_marked(load_mark(x.T, chunk));
  const typename Shape::KeyTile dO{memory->dO}, dV{memory->dV}, v_new{memory->v_new};
  const ValueTile Q{memory->Q}, K{memory->K};
  const typename Shape::ScoreTile Y{memory->Y}, Z{memory->Z};

  load_tile_async(dO, g.d_o.row(b, h, t), g.d_o.stride_l, rows, g.Dv);
  load_tile_async(v_new, x.v_new.row(b, h, t), x.v_new.stride_l, rows, g.Dv);
  load_tile_async(dV, g.dv.row(b, h, t), g.dv.stride_l, rows, g.Dv);
  load_tile_async(Q, g.q.row(b, h, t) + first, g.q.stride_l, rows, columns);
  load_tile_async(K, g.k.row(b, h, t) + first, g.k.stride_l, rows, columns);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  masked_scores<Shape>(Y, dO, v_new, Scaled(g.scale));
  float* dbeta = first == 0 ? g.dbeta.row(b, h, t) : nullptr;
  Negated strictly_lower{{}, g.beta.row(b, h, t), dbeta, g.beta.stride_l, g.dbeta.stride_l, rows};
  masked_scores<Shape>(Z, dV, v_new, strictly_lower);
  __syncthreads();

  // A warp without columns computes with zeros.
  const int d = first + warp_index() * 16, count = d < g.Dk ? g.Dv / 16 : 0;
  const uint4* S = fragments_of(x.S, g, chunk, g.Dk / 16, 0) + d / 16 * 32;
  const uint4* dS = fragments_of(x.dS, g, chunk, g.Dk / 16, 0) + d / 16 * 32;
  {
    typename Shape::Output dK = {};
    add_from_fragments<Shape>(dK, dV, S, stride, count);
    scale_rows<Shape>(dK, [](int) { return -1.0f; });
    add_from_fragments<Shape>(dK, v_new, dS, stride, count);
    add_from_transposed_scores<Shape>(dK, Y, Q);
    add_from_scores<Shape>(dK, Z, K);
    add_from_transposed_scores<Shape>(dK, Z, K);
    store_output<Shape>(g.dk.row(b, h, t) + first, g.dk.stride_l, rows, columns, dK, Q, 1.0f);
  }
  typename Shape::Output dQ = {};
  add_from_fragments<Shape>(dQ, dO, S, stride, count);
  scale_rows<Shape>(dQ, [&](int) { return g.scale; });
  add_from_scores<Shape>(dQ, Y, K);
  for (int part = 0; alike && part < 2; ++part) {  // Y's rounding errors, then Y of v_new's; both in the place of Z
    cp_async_wait<0>();
    __syncthreads();
    masked_scores<Shape>(Z, dO, v_new, Scaled(g.scale, part == 0));
    __syncthreads();
    if (part == 0) load_tile_async(v_new, x.v_errors.row(b, h, t), x.v_errors.stride_l, rows, g.Dv);
    cp_async_commit();
    add_from_scores<Shape>(dQ, Z, K);
  }
  store_output<Shape>(g.dq.row(b, h, t) + first, g.dq.stride_l, rows, columns, dQ, K, 1.0f);
}

}  // namespace

Workspace workspace_of(const Bf16BackwardArguments& g, const char* name) {
  const Prepared prepared = prepare(forward_of(g), kLeastBeta);
  end_part("prepare");
  const std::int64_t heads = std::int64_t(g.B) * g.H, state = heads * prepared.N * g.Dk * g.Dv / 8;  // in uint4
  auto* memory = workspace<uint4>(name, std::size_t(2 * state + heads * g.L * g.Dv / 8));
  auto* v_new = reinterpret_cast<__nv_bfloat16*>(memory + 2 * state);
  return {prepared, packed(v_new, g.H, g.L, g.Dv), {}, memory, memory + state};
}

void start_gradients(const Bf16BackwardArguments& g, const Workspace& x) {
  const dim3 grid(unsigned(x.N * column_tiles(g.Dk)), unsigned(g.H), unsigned(g.B));
  select_shape(g.Dv, [&]<class Shape>(Shape) {
    launch(gradients_kernel<Shape>, {grid, kThreads, sizeof(ChunkTilesOf<Shape>)}, g, x);
  });
  end_part("gradients");
}

void tensor_core_backward(const Bf16BackwardArguments& g) {
  const Bf16Arguments a = forward_of(g);
  const Workspace x = workspace_of(g, "delta_rule --backward: tensor_core");
  const int tiles = column_tiles(a.Dv);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(a.H), unsigned(a.B)); };
  select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(states_kernel<Shape>, {grid(tiles), kThreads, kSharedBytes<Shape>}, a, x);
    end_part("states");
    launch(gradient_states_kernel<Shape>, {grid(tiles), kThreads, kSharedBytes<Shape>}, g, a, x);
    end_part("gradients of states");
  });
  start_gradients(g, x);
}

}  // namespace tutorial::delta_rule
