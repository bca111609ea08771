/// @file
/// Stage 6, `block_inverse`: T from its blocks of 16 x 16.
///
/// Idea: forward substitution takes 64 steps, one row after the other. But X = (I + A)^-1 consists of blocks, and those
/// on its diagonal are the inverses of those on the diagonal of I + A, which do not depend on each other. Each takes 16
/// steps, and all four are computed at once. The rest is merged from them by products of blocks, all of whose sums are
/// independent. Blocks at the same distance from the diagonal are computed at once:
///
///     columns    0-15   16-31   32-47   48-63
///     rows       +-------+-------+-------+-------+
///      0-15      |   1   |                           1   inverted: 16 rows, one after the other
///     16-31      |   2   |   1   |                   2   from two blocks 1
///     32-47      |   3   |   2   |   1   |           3   from blocks 1 and 2
///     48-63      |   4   |   3   |   2   |   1   |   4   from blocks 1, 2 and 3
///
/// Grows out of: 5_chunk_gpu.cu
/// Improves on: in `chunk_gpu` two of eight warps compute T, in 64 dependent rows, and the others wait.
/// Unchanged: A, and the three kernels after this one.
///
/// Equation: block (r, c) of (I + A) X = I, c < r, says that A_rc X_cc + ... + A_r,r-1 X_r-1,c + (I + A_rr) X_rc = 0. So
///
///     X_rr = (I + A_rr)^-1
///     Z_rc = A_rc X_cc + ... + A_r,r-1 X_r-1,c            c < r         for two blocks: X_10 = -X_11 A_10 X_00
///     X_rc = -X_rr Z_rc
///     T    = X diag(beta)
///
/// Shapes: those of `chunk_gpu`. A and X are tiles of 64 x 64 in shared memory; Z_rc lies above the diagonal of A, in
/// the place of block (c, r).
/// Thread mapping: of the blocks on the diagonal, thread 16 r + i has column i of block r. Of a product of blocks, each
/// of the 256 threads has one element.
/// Synchronization: a barrier after the blocks on the diagonal, and two for each distance from it.
/// Resources: 34 KB of shared memory in solve_kernel.
/// Work: for T 16 rows of substitution and 16 products of blocks, 73,000 multiply-adds; 64 rows take 129,000.
/// Bytes, bound by, requires: those of `chunk_gpu`.
/// Weakness: that of `chunk_gpu`: no product runs on tensor cores.
/// Sources: arXiv 2406.06484, section 3.2; flash-linear-attention, `solve_tril`, for blocks of 16.

#include <cuda_runtime.h>

#include <utility>

#include "05_deltanet_wy/chunk/blocks.hpp"
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

/// X = (I + A)^-1, on and below the diagonal. The blocks above the diagonal of A are overwritten. 256 threads call it.
__device__ __forceinline__ void invert_in_blocks(const Tile& X, const Tile& A) {
  const int y = tile_y(), x = tile_x();
  if (y < kBlocks) {
    const int first = y * kBlock;
    float column[kBlock];
#pragma unroll
    for (int t = 0; t < kBlock; ++t) {
      float sum = t == x ? 1.0f : 0.0f;
#pragma unroll
      for (int i = 0; i < t; ++i) sum -= *A.at(first + t, first + i) * column[i];
      column[t] = sum;
      *X.at(first + t, first + x) = sum;
    }
  }
  __syncthreads();
  for (int distance = 1; distance < kBlocks; ++distance) {
    for (int r = distance; r < kBlocks; ++r) {
      const int row = r * kBlock, column = row - distance * kBlock;
      float Z = 0;
      for (int i = column; i < row; ++i) Z += *A.at(row + y, i) * *X.at(i, column + x);
      *A.at(column + y, row + x) = Z;
    }
    __syncthreads();
    for (int r = distance; r < kBlocks; ++r) {
      const int row = r * kBlock, column = row - distance * kBlock;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kBlock; ++i) sum -= *X.at(row + y, row + i) * *A.at(column + i, row + x);
      *X.at(row + y, column + x) = sum;
    }
    __syncthreads();
  }
}

/// Grid (B H N).
__global__ void __launch_bounds__(kTileThreads) solve_kernel(FloatArguments a, int N, ChunkVectors x) {
  __shared__ float beta[kTileRows], factor[kTileRows];
  const Tile K{dynamic_shared<float>()}, &A = K, X{K.data + Tile::kElements};
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
  invert_in_blocks(X, A);
  float* T = x.T + std::int64_t(blockIdx.x) * a.C * a.C;
  for (int element = thread; element < a.C * a.C; element += kTileThreads) {
    const int t = element / a.C, i = element % a.C;
    store_global(T + element, i <= t ? *X.at(t, i) * beta[i] : 0.0f);
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

/// Starts the kernels for T, W and U.
ChunkVectors vectors_from_blocks(const FloatArguments& a) {
  const Counts counts(a);
  float* memory = workspace<float>("delta_rule: block_inverse", std::size_t(counts.all()));
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
  launch(solve_kernel, {chunks, kTileThreads, 2 * kTileBytes}, a, N, x);
  launch(vectors_kernel, {dim3(chunks, tiles(a.Dk, kColumns) + tiles(a.Dv, kColumns)), kTileThreads, 2 * kTileBytes}, a,
         N, x);
  return x;
}

}  // namespace

void block_inverse(const FloatArguments& a) {
  const ChunkVectors x = vectors_from_blocks(a);
  const int N = ceil_div(a.L, a.C);
  const auto heads = unsigned(a.B * a.H), chunks = heads * unsigned(N);
  launch(states_kernel,
         {dim3(heads, tiles(a.Dv, kWalkColumns)), kTileThreads,
          kTileBytes + (1 + tiles(a.Dk, kTileRows)) * kWalkTileBytes},
         a, N, x);
  launch(outputs_kernel, {dim3(chunks, tiles(a.Dv, kColumns)), kTileThreads, 3 * kTileBytes}, a, N, x);
}

}  // namespace tutorial::delta_rule
