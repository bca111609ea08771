/// @file
/// Stage 3, `walks`: two walks on the GPU, and from what they leave the gradients of all chunks at once.
///
/// Idea: of a chunk's gradients, only dS is what another chunk waits for. So what must go from chunk to chunk is two
/// walks. The one from the beginning is that of `fused` of the operator without outputs: it leaves v_new and the state
/// before each chunk. The one from the end is new. It leaves dS after each chunk, and on its way it computes dV, which
/// is an output. With these four in device memory no chunk waits for another one, and a last kernel computes dq, dk and
/// dbeta of all of them at once. Here it does so by simple means: a thread computes one element after the other, straight
/// from the lines of `chunkwise`.
///
/// The triangular systems of `chunkwise` become products: v_new = T R and dV = T^T dv_new, since T^T = diag(beta) (I +
/// A)^-T. Both walks read the same T; the walk from the end transposes its blocks in registers.
///
/// dbeta is the diagonal of a product that is computed anyway. With dV = diag(beta) E and v_new = diag(beta) r,
/// (dV v_new^T)_tt = beta_t^2 e_t . r_t. So that beta_t^2 is never 0, this stage replaces a beta below 2^-32 by 2^-32.
/// Such a position then writes 2^-32 of what its key asks for, which is below the rounding of every other result.
/// Grows out of: 05_deltanet_wy/delta_rule/8_fused.cu
/// Improves on: `chunkwise` computes the chunks of a head one after the other.
/// Unchanged: T and P, the tiles of a walk, and its steps from the beginning. T is in two bf16.
/// Equation: S' = dS / scale in the walk from the end, so that the factor scale stays outside of its sums
///
///     T = (I + A)^-1 diag(beta),  P = (Q K^T) . M                         prepare(), all chunks
///     v_new = T (V - K S),  S = S + K^T v_new                             states_kernel; it leaves v_new and the old S
///     X = P^T dO + K S',  dV' = T^T X,  S' = S' + Q^T dO - K^T dV'        gradient_states_kernel; it leaves dv = scale
///                                                                         dV' and the old S'
///     Y = scale (dO v_new^T) . M,  Z = tril(dV v_new^T, -1)               gradients_kernel, all chunks
///     dQ = scale dO S^T + Y K,  dbeta_t = (dV v_new^T)_tt / beta_t^2
///     dK = scale v_new S'^T - dV S^T + Y^T Q - (Z + Z^T) K
///
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16; beta, dbeta [B, H, L] and the user's states fp32;
/// v_new [B, H, L, Dv] bf16; S and S' [B, H, N, Dk, Dv] bf16 for the N = ceil(L / 64) chunks, as fragments of 16 bytes
/// per lane; Y and Z [C, C] fp32 in shared memory.
/// Thread mapping: in the walks, block (tile of 64 columns of Dv, h, b) has four warps with 16 columns each. In
/// gradients_kernel, block (chunk, h, b) has 128 threads, which take elements of Y and Z in turn, then of dQ and dK.
/// Synchronization: one barrier per chunk in the walks; one in gradients_kernel, between Y and Z and their use.
/// Resources: at Dk = 128 a walk has 118 KB of shared memory, the last kernel 32 KB.
/// Work: that of prepare(), and per position 10 Dk Dv + 160 (Dk + 3 Dv) operations in the walks, on tensor cores; 6 Dk Dv
/// + 128 (2 Dk + Dv) in the last kernel, in fp32.
/// Bytes: walks_backward_bytes_moved() has the formula. The last kernel loads a number for each product that it is in,
/// 10 Dk Dv bytes per position and more, which caches serve.
/// Bound by: the loads of the last kernel.
/// Requires: Dk and Dv multiples of 16, up to 256; rows aligned to 16 bytes; keys of length 1.
/// Weakness: the last kernel loads two numbers for each multiply-add.
/// Source: arXiv 2406.06484, section 3.2. The backward pass of `chunk_delta_rule` in flash-linear-attention is cut in a
/// similar way.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/delta_rule_backward/gradient_walk.cuh"
#include "common/device/cp_async.cuh"
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

/// What the kernels pass on to each other in device memory. They also read dv, which is an output.
struct Workspace : Prepared {
  View<__nv_bfloat16> v_new;  // [B, H, L, Dv]
  uint4 *S, *dS;  // [B, H, N, Dv / 16, Dk / 16, 32]: S before each chunk, dS / scale after it; A fragments of S^T, dS^T
};

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
      const uint4 s = rounded(S[0][2 * d], S[0][2 * d + 1]);
      if (j < g.Dv && d * 16 < g.Dk) store_global(states + d * 32, s);
      return s;
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

/// An element of a matrix that lies in device memory as A fragments, row after row of them.
/// @param width fragments in a row
__device__ __forceinline__ float element(const uint4* fragments, int width, int row, int column) {
  const int lane = row % 8 * 4 + column % 8 / 2, part = row / 8 % 2 + column / 8 % 2 * 2;
  const uint4* fragment = fragments + (row / 16 * width + column / 16) * 32 + lane;
  return float(load_global(reinterpret_cast<const __nv_bfloat16*>(fragment) + part * 2 + column % 2));
}

/// All other gradients of a chunk, an element after the other. Grid (chunks, H, B).
__global__ void __launch_bounds__(kThreads) gradients_kernel(Bf16BackwardArguments g, Workspace x) {
  __shared__ float Y[kChunk][kChunk], Z[kChunk][kChunk];
  const int b = int(blockIdx.z), h = int(blockIdx.y), first = int(blockIdx.x) * kChunk, rows = min(kChunk, g.L - first);
  const std::int64_t chunk = (std::int64_t(b) * g.H + h) * x.N + blockIdx.x;
  const auto row_of = [&](const auto& view, int t, int d) { return float(load_global(view.row(b, h, first + t) + d)); };
  const auto state = [&](auto* S, int d, int j) { return element(S + chunk * g.Dk * g.Dv / 8, g.Dk / 16, j, d); };

  for (int e = int(threadIdx.x); e < rows * rows; e += kThreads) {
    const int t = e / rows, i = e % rows;
    float y = 0, z = 0;
    for (int j = 0; j < g.Dv && i <= t; ++j) {
      const float v = row_of(x.v_new, i, j);
      y += g.scale * row_of(g.d_o, t, j) * v, z += row_of(g.dv, t, j) * v;
    }
    if (i == t) {
      const float beta = fmaxf(load_global(g.beta.row(b, h, first + t)), kLeastBeta);
      store_global(g.dbeta.row(b, h, first + t), z / (beta * beta));
    }
    Y[t][i] = y, Z[t][i] = i < t ? z : 0;
  }
  __syncthreads();
  for (int e = int(threadIdx.x); e < rows * g.Dk; e += kThreads) {
    const int t = e / g.Dk, d = e % g.Dk;
    float dq = 0, dk = 0;
    for (int j = 0; j < g.Dv; ++j) {
      const float s = state(x.S, d, j);
      dq += g.scale * row_of(g.d_o, t, j) * s;
      dk += g.scale * row_of(x.v_new, t, j) * state(x.dS, d, j) - row_of(g.dv, t, j) * s;
    }
    for (int i = 0; i < rows; ++i) {
      const float k = row_of(g.k, i, d);
      dq += Y[t][i] * k;
      dk += Y[i][t] * row_of(g.q, i, d) - (Z[t][i] + Z[i][t]) * k;
    }
    store_global(g.dq.row(b, h, first + t) + d, __nv_bfloat16(dq));
    store_global(g.dk.row(b, h, first + t) + d, __nv_bfloat16(dk));
  }
}

}  // namespace

void walks_backward(const Bf16BackwardArguments& g) {
  const Bf16Arguments a = forward_of(g);
  const Prepared prepared = prepare(a, kLeastBeta);
  end_part("prepare");
  const std::int64_t heads = std::int64_t(a.B) * a.H, state = heads * prepared.N * a.Dk * a.Dv / 8;  // in uint4
  auto* memory = workspace<uint4>("delta_rule --backward: walks", std::size_t(2 * state + heads * a.L * a.Dv / 8));
  auto* v_new = reinterpret_cast<__nv_bfloat16*>(memory + 2 * state);
  const Workspace x{prepared, packed(v_new, a.H, a.L, a.Dv), memory, memory + state};
  const int tiles = column_tiles(a.Dv);
  const auto grid = [&](int blocks) { return dim3(unsigned(blocks), unsigned(a.H), unsigned(a.B)); };
  select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(states_kernel<Shape>, {grid(tiles), kThreads, kSharedBytes<Shape>}, a, x);
    end_part("states");
    launch(gradient_states_kernel<Shape>, {grid(tiles), kThreads, kSharedBytes<Shape>}, g, a, x);
    end_part("gradients of states");
  });
  launch(gradients_kernel, {grid(x.N), kThreads}, g, x);
  end_part("gradients");
}

}  // namespace tutorial::delta_rule
