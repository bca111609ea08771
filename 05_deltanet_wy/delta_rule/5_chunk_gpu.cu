/// @file
/// Stage 5, `chunk_gpu`: the UT transform on the GPU, one kernel for each of its lines.
///
/// Idea: T, W and U of a chunk do not depend on other chunks. Its outputs do not either, once the state that it starts
/// from is known. So all chunks compute these at once, and only the states are computed one after the other, in a walk
/// from chunk to chunk.
/// Grows out of: 4_ut_transform.cpp; port to the GPU: each line becomes a kernel on tiles in shared memory
/// Improves on: `ut_transform` uses one CPU thread per head, and `recurrent_gpu` takes L dependent steps. Here there
/// are L / C dependent steps of two matrix products each. Chapter 02's `materialized` could compute every chunk's K^T V
/// at once and then sum. What a chunk adds here, K^T v_new, contains the state before it, so the products stay in the
/// walk.
/// Unchanged: the equations of `ut_transform`.
///
/// Equation:
///
///     A = tril(diag(beta) K K^T, -1),  (I + A) T = diag(beta)           solve_kernel: T [C, C]
///     W = T K,  U = T V                                                 vectors_kernel
///     v_new = U - W S_{n-1},  S_n = S_{n-1} + K^T v_new                 states_kernel: v_new and each S_{n-1}
///     O_n = scale (Q S_{n-1} + ((Q K^T) . M) v_new)                     outputs_kernel
///
/// With `normalize_keys`, diag(f) K takes the place of K, where f_t = 1 / sqrt(k_t . k_t + eps). The first kernel finds
/// k_t . k_t on the diagonal of K K^T, which it computes anyway. It writes f for the other kernels.
///
/// T is computed row by row, T_t = beta_t e_t - sum_{i<t} A_ti T_i. The columns of T do not depend on each other, so
/// each of 64 threads computes one. All of them read the same row of A at once.
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; for the N =
/// ceil(L / C) chunks T [B, H, N, C, C] and states [B, H, N, Dk, Dv]; W [B, H, L, Dk], U and v_new [B, H, L, Dv], f
/// [B, H, L]; all fp32 in device memory.
/// Thread mapping: block (b h n) computes the T of a chunk. Block (b h n, tile) computes 64 columns of W or U, or of
/// O_n. Block (b h, tile) walks with 32 columns of S: 64 would leave half as many blocks and would not fit into shared
/// memory. A thread has 4 x 4 or 4 x 2 sums of a tile (common/tile/float_tile.cuh). A tile has 64 rows; the rows beyond
/// a shorter chunk are zeros.
/// Resources: 17 to 52 KB of shared memory; the walk has 27 KB and 9 KB more for each 64 rows of S.
/// Work: that of `ut_transform` at C = 64, and the products with the zeros above the diagonal of T.
/// Bytes: q, v and o once, k in each kernel; W, U, v_new, T (4 C L per head) and states (4 N Dk Dv per head) written
/// and read. At C = 64, Dk = Dv = 128 that is 4.5 times the inputs and outputs. The tiles of a kernel request some of
/// it again. All requests together are 6.9 times the inputs and outputs.
/// Bound by: the walk, with its B H Dv / 32 blocks and L / C dependent steps, and the fp32 units.
/// Requires: Dk <= 256, C <= 64; keys as in `recurrent`.
/// Weakness: no product runs on tensor cores, and the four kernels pass all their results through device memory.
/// Sources: arXiv 2406.06484, section 3.2 and its algorithm; chapter 02's `materialized`.

#include <cuda_runtime.h>

#include <utility>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/chunk_vectors.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/float_tile.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;  // the tiles

constexpr int kColumns = 64;      // of a tile
constexpr int kWalkColumns = 32;  // of a tile of the state in the walk
using Tile = FloatTile<kColumns>;
using WalkTile = FloatTile<kWalkColumns>;

/// A chunk: the positions t to t + rows.
struct ChunkRows {
  int b, h, t, rows;

  __device__ __forceinline__ ChunkRows(const FloatArguments& a, int head, int n)
      : b(head / a.H), h(head % a.H), t(n * a.C), rows(min(a.C, a.L - t)) {}
};

/// Multiplies a tile of K, which load_tile() has loaded, by the keys' factors. Each thread scales the elements that it
/// has loaded itself.
__device__ __forceinline__ void scale_keys(const Tile& K, const View<float>& factors, const ChunkRows& at) {
  if (factors.data == nullptr) return;
  const int column = int(threadIdx.x) % kColumns;
  for (int row = int(threadIdx.x) / kColumns; row < at.rows; row += kTileThreads / kColumns) {
    *K.at(row, column) *= load_global(factors.row(at.b, at.h, at.t + row));
  }
}

/// Grid (B H N).
__global__ void __launch_bounds__(kTileThreads) solve_kernel(FloatArguments a, int N, ChunkVectors x) {
  __shared__ float beta[kTileRows], factor[kTileRows];
  const Tile K{dynamic_shared<float>()}, &A = K;
  const ChunkRows at(a, int(blockIdx.x) / N, int(blockIdx.x) % N);
  const int thread = int(threadIdx.x);

  float products[4][4] = {};  // k_t . k_i
  for (int d = 0; d < a.Dk; d += kColumns) {
    load_tile(K, a.k.row(at.b, at.h, at.t) + d, a.k.stride_l, at.rows, a.Dk - d);
    __syncthreads();
    add_scores(products, K, K);
    __syncthreads();
  }
  if (thread < kTileRows) {
    beta[thread] = thread < at.rows ? load_global(a.beta.row(at.b, at.h, at.t + thread)) : 0.0f;
  }
  if (tile_x() == tile_y()) {  // these threads have the diagonal
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int t = tile_y() + 16 * r;
      factor[t] = a.normalize_keys ? 1 / sqrtf(products[r][r] + kKeyEps) : 1.0f;
      if (a.normalize_keys && t < at.rows) store_global(x.factors.row(at.b, at.h, at.t + t), factor[t]);
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c <= r; ++c) {
      const int t = tile_y() + 16 * r, i = tile_x() + 16 * c;
      *A.at(t, i) = i < t ? beta[t] * factor[t] * factor[i] * products[r][c] : 0.0f;
    }
  }
  __syncthreads();
  if (thread >= a.C) return;
  // Column `thread` of T. It is in registers so that its rows do not wait for memory. That is why the loop over its 64
  // rows is unrolled.
  float T[kTileRows];
  float* column = x.T + std::int64_t(blockIdx.x) * a.C * a.C + thread;
#pragma unroll
  for (int t = 0; t < kTileRows; ++t) {
    float sum = t == thread ? beta[t] : 0.0f;
#pragma unroll
    for (int i = 0; i < t; ++i) sum -= *A.at(t, i) * T[i];
    T[t] = sum;
    if (t < a.C) store_global(&column[t * a.C], sum);
  }
}

/// Grid (B H N, tiles of the columns of W, then of U).
__global__ void __launch_bounds__(kTileThreads, 2) vectors_kernel(FloatArguments a, int N, ChunkVectors x) {
  const Tile T{dynamic_shared<float>()}, X{T.data + Tile::kElements};
  const ChunkRows at(a, int(blockIdx.x) / N, int(blockIdx.x) % N);
  const int key_tiles = (a.Dk - 1) / kColumns + 1, tile = int(blockIdx.y);
  const bool for_keys = tile < key_tiles;
  const int first = (for_keys ? tile : tile - key_tiles) * kColumns;
  const View<const float>& from = for_keys ? a.k : a.v;
  const View<float>& to = for_keys ? x.W : x.U;
  const int columns = (for_keys ? a.Dk : a.Dv) - first;

  load_tile(T, x.T + std::int64_t(blockIdx.x) * a.C * a.C, a.C, a.C, a.C);
  load_tile(X, from.row(at.b, at.h, at.t) + first, from.stride_l, at.rows, columns);
  if (for_keys) scale_keys(X, x.factors, at);
  __syncthreads();
  float sums[4][kColumns / 16] = {};
  add_product<true>(sums, T, X);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = tile_y() + 16 * r;
    if (row < at.rows) store_row(to.row(at.b, at.h, at.t + row) + first, sums[r], 1.0f, columns);
  }
}

/// Grid (B H, tiles of the columns).
__global__ void __launch_bounds__(kTileThreads, 2) states_kernel(FloatArguments a, int N, ChunkVectors x) {
  constexpr int kWide = kWalkColumns / 16;
  const Tile K{dynamic_shared<float>()}, &W = K;
  const WalkTile V_new{K.data + Tile::kElements};
  const int head = int(blockIdx.x), j = int(blockIdx.y) * kWalkColumns, slices = (a.Dk - 1) / kTileRows + 1;
  const auto state = [&](int slice) {
    return WalkTile{V_new.data + (slice + 1) * WalkTile::kElements};
  };  // 64 rows of S

  const ChunkRows start(a, head, 0);
  for (int slice = 0; slice < slices; ++slice) {
    const int d = slice * kTileRows, rows = a.initial_state.data ? a.Dk - d : 0;
    load_tile(state(slice), a.initial_state.row(start.b, start.h, d) + j, a.initial_state.stride_l, rows, a.Dv - j);
  }
  for (int n = 0; n < N; ++n) {
    const ChunkRows at(a, head, n);
    const int b = at.b, h = at.h, t = at.t;
    float v_new[4][kWide] = {};  // W S, then v_new
    for (int slice = 0; slice < slices; ++slice) {
      const int d = slice * kTileRows;
      load_tile(W, x.W.row(b, h, t) + d, a.Dk, at.rows, a.Dk - d);
      __syncthreads();
      add_product<false>(v_new, W, state(slice));
      __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = tile_y() + 16 * r;
#pragma unroll
      for (int c = 0; c < kWide; ++c) {
        const int column = tile_x() * kWide + c;
        const bool is_there = row < at.rows && j + column < a.Dv;
        const float u = is_there ? load_global(&x.U.row(b, h, t + row)[j + column]) : 0.0f;
        v_new[r][c] = u - v_new[r][c];
        if (is_there) store_global(&x.v_new.row(b, h, t + row)[j + column], v_new[r][c]);
        *V_new.at(row, column) = v_new[r][c];
      }
    }
    for (int slice = 0; slice < slices; ++slice) {
      const int d = slice * kTileRows;
      load_tile(K, a.k.row(b, h, t) + d, a.k.stride_l, at.rows, a.Dk - d);
      scale_keys(K, x.factors, at);
      __syncthreads();
      float sums[4][kWide] = {};
      add_transposed_product(sums, K, V_new);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int row = tile_y() * 4 + r;
#pragma unroll
        for (int c = 0; c < kWide; ++c) {
          const int column = tile_x() * kWide + c;
          float& S = *state(slice).at(row, column);
          if (d + row < a.Dk && j + column < a.Dv) {
            store_global(x.states + ((std::int64_t(head) * N + n) * a.Dk + d + row) * a.Dv + j + column, S);
          }
          S += sums[r][c];
        }
      }
      __syncthreads();
    }
  }
  if (a.final_state.data == nullptr) return;
  for (int slice = 0; slice < slices; ++slice) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int row = tile_y() * 4 + r;
      const float(&S)[kWide] = floats<kWide>(state(slice).at(row, tile_x() * kWide)).of;
      if (slice * kTileRows + row < a.Dk) {
        store_row(a.final_state.row(start.b, start.h, slice * kTileRows + row) + j, S, 1.0f, a.Dv - j);
      }
    }
  }
}

/// Grid (B H N, tiles of the columns).
__global__ void __launch_bounds__(kTileThreads, 2) outputs_kernel(FloatArguments a, int N, ChunkVectors x) {
  const Tile Q{dynamic_shared<float>()}, K{Q.data + Tile::kElements}, S{K.data + Tile::kElements};
  const ChunkRows at(a, int(blockIdx.x) / N, int(blockIdx.x) % N);
  const int b = at.b, h = at.h, t = at.t, j = int(blockIdx.y) * kColumns;
  const float* state = x.states + std::int64_t(blockIdx.x) * a.Dk * a.Dv + j;

  float scores[4][4] = {}, O[4][kColumns / 16] = {};
  for (int d = 0; d < a.Dk; d += kTileRows) {
    load_tile(Q, a.q.row(b, h, t) + d, a.q.stride_l, at.rows, a.Dk - d);
    load_tile(K, a.k.row(b, h, t) + d, a.k.stride_l, at.rows, a.Dk - d);
    scale_keys(K, x.factors, at);
    load_tile(S, state + std::int64_t(d) * a.Dv, a.Dv, a.Dk - d, a.Dv - j);
    __syncthreads();
    add_scores(scores, Q, K);
    add_product<false>(O, Q, S);
    __syncthreads();
  }
  const Tile &P = Q, &V_new = K;
  store_masked(P, scores);
  load_tile(V_new, x.v_new.row(b, h, t) + j, a.Dv, at.rows, a.Dv - j);
  __syncthreads();
  add_product<true>(O, P, V_new);

#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = tile_y() + 16 * r;
    if (row < at.rows) store_row(a.o.row(b, h, t + row) + j, O[r], a.scale, a.Dv - j);
  }
}

/// How many floats each array of the workspace has.
struct Counts {
  std::int64_t T, W, U, v_new, states, factors;

  explicit Counts(const FloatArguments& a) {
    const std::int64_t heads = std::int64_t(a.B) * a.H, chunks = heads * ceil_div(a.L, a.C);
    T = chunks * a.C * a.C;
    W = heads * a.L * a.Dk;
    U = heads * a.L * a.Dv;
    v_new = U;
    states = chunks * a.Dk * a.Dv;
    factors = a.normalize_keys ? heads * a.L : 0;
  }
  std::int64_t all() const { return T + W + U + v_new + states + factors; }
};

unsigned tiles(int width, int columns) {
  return unsigned(ceil_div(width, columns));
}

constexpr std::size_t kTileBytes = Tile::kElements * sizeof(float),
                      kWalkTileBytes = WalkTile::kElements * sizeof(float);

}  // namespace

ChunkVectors chunk_vectors(const FloatArguments& a) {
  const Counts counts(a);
  float* memory = workspace<float>("delta_rule: chunk_gpu", std::size_t(counts.all()));
  const auto take = [&](std::int64_t count) { return std::exchange(memory, memory + count); };
  ChunkVectors x;
  x.T = take(counts.T);
  x.W = packed(take(counts.W), a.H, a.L, a.Dk);
  x.U = packed(take(counts.U), a.H, a.L, a.Dv);
  x.v_new = packed(take(counts.v_new), a.H, a.L, a.Dv);
  x.states = take(counts.states);
  if (a.normalize_keys) x.factors = packed(take(counts.factors), a.H, a.L, 1);

  const int N = ceil_div(a.L, a.C);
  const auto chunks = unsigned(a.B * a.H) * unsigned(N);
  launch(solve_kernel, {chunks, kTileThreads, kTileBytes}, a, N, x);
  launch(vectors_kernel, {dim3(chunks, tiles(a.Dk, kColumns) + tiles(a.Dv, kColumns)), kTileThreads, 2 * kTileBytes}, a,
         N, x);
  return x;
}

void chunk_gpu(const FloatArguments& a) {
  const ChunkVectors x = chunk_vectors(a);
  const int N = ceil_div(a.L, a.C);
  const auto heads = unsigned(a.B * a.H), chunks = heads * unsigned(N);
  launch(states_kernel,
         {dim3(heads, tiles(a.Dv, kWalkColumns)), kTileThreads,
          kTileBytes + (1 + tiles(a.Dk, kTileRows)) * kWalkTileBytes},
         a, N, x);
  launch(outputs_kernel, {dim3(chunks, tiles(a.Dv, kColumns)), kTileThreads, 3 * kTileBytes}, a, N, x);
}

}  // namespace tutorial::delta_rule
