/// @file
/// Stage 3, `materialized`: all chunks at once on the GPU, with their states in device memory.
///
/// Idea: in `chunkwise` only the sum S_n = S_{n-1} + K_n^T V_n ties a chunk to the one before. The terms of this sum,
/// and the outputs computed from it, are products of one chunk alone. So there are three kernels, like the passes of
/// the prefix sums. The first computes K_n^T V_n of all chunks at once, the second computes a running sum over them,
/// and the third computes the outputs of all chunks at once.
/// Grows out of: 2_chunkwise.cpp; port to the GPU: a loop over heads becomes a grid, and the state goes through memory
/// Improves on: `chunkwise` has one thread per head and walks the chunks of a head one after the other.
/// Unchanged: the equations. C is 64.
/// Equation:
///
///   X_n = K_n^T V_n                                              chunk_states_kernel
///   start of chunk n = S_0 + X_0 + ... + X_{n-1}                 running_sum_kernel, in the place of X_n
///   O_n = scale (Q_n (start of n) + ((Q_n K_n^T) . M) V_n)       outputs_kernel
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; states [B, H, N, Dk, Dv] for the
/// N = ceil(L / 64) chunks; all fp32 in device memory.
/// Thread mapping: in the first kernel block (b h n, tile) computes a 64 x 64 tile of X_n, in the third a tile of 64
/// columns of O_n; each thread has 4 x 4 elements of the tile (common/tile/float_tile.cuh). In the second kernel each
/// thread has one element of a state and walks the N chunks. It reads 8 chunks at a time, because otherwise it would
/// wait for each chunk's load in turn.
/// Resources: two tiles of 17 KB of shared memory in the first kernel and three in the third; 16 sums of each product
/// per thread in registers.
/// Work: 4 Dk Dv + 64 (Dk + Dv) operations per position. The third kernel computes the scores again for every tile
/// of columns.
/// Bytes: q and o once, k and v twice. Each tile that needs them reads them again, mostly from the second-level cache.
/// The states, 4 N Dk Dv bytes per head, are written twice and read twice. At Dk = Dv = 128 that is twice as many bytes
/// as q, k, v and o.
/// Bound by: those bytes, and the fp32 units.
/// Requires: no particular widths or strides.
/// Weakness: the states cross device memory four times and occupy half as much of it as q, k, v and o. `fused` keeps
/// them on the chip.
/// Sources: arXiv 2312.06635, algorithm 1 with materialization.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/float_tile.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kChunkLength = kTileRows;
constexpr int kColumns = 64;  // of a tile
constexpr int kAhead = 8;     // chunks that the running sum reads at once
using Tile = FloatTile<kColumns>;

/// Grid (B H N, tiles of the state).
__global__ void __launch_bounds__(kTileThreads, 2) chunk_states_kernel(FloatArguments a, int N, float* states) {
  const Tile K{dynamic_shared<float>()}, V{K.data + Tile::kElements};
  const int n = int(blockIdx.x) % N, head = int(blockIdx.x) / N, b = head / a.H, h = head % a.H;
  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int d = int(blockIdx.y) / tiles * kTileRows, j = int(blockIdx.y) % tiles * kColumns;  // the tile's corner
  const int t = n * kChunkLength;

  load_tile(K, a.k.row(b, h, t) + d, a.k.stride_l, a.L - t, a.Dk - d);
  load_tile(V, a.v.row(b, h, t) + j, a.v.stride_l, a.L - t, a.Dv - j);
  __syncthreads();
  float X[4][kColumns / 16] = {};
  add_transposed_product(X, K, V);

  float* state = states + std::int64_t(blockIdx.x) * a.Dk * a.Dv + j;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = d + tile_y() * 4 + r;
    if (row < a.Dk) store_row(state + std::int64_t(row) * a.Dv, X[r], 1.0f, a.Dv - j);
  }
}

/// Replaces the product of each chunk by the state that the chunk starts from. Grid (B H, ceil(Dk Dv / kTileThreads)).
__global__ void running_sum_kernel(FloatArguments a, int N, float* states) {
  const int head = int(blockIdx.x), b = head / a.H, h = head % a.H;
  const int element = int(blockIdx.y * blockDim.x + threadIdx.x), d = element / a.Dv, j = element % a.Dv;
  if (d >= a.Dk) return;
  const std::int64_t size = std::int64_t(a.Dk) * a.Dv;
  float* place = states + head * N * size + element;

  float S = a.initial_state.data ? load_global(&a.initial_state.row(b, h, d)[j]) : 0.0f;
  for (int n = 0; n < N; n += kAhead, place += kAhead * size) {
    const int count = min(kAhead, N - n);
    float X[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) X[i] = i < count ? place[i * size] : 0.0f;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i < count) store_global(&place[i * size], S);
      S += X[i];
    }
  }
  if (a.final_state.data) store_global(&a.final_state.row(b, h, d)[j], S);
}

/// Grid (B H N, tiles of the columns).
__global__ void __launch_bounds__(kTileThreads, 2) outputs_kernel(FloatArguments a, int N, const float* states) {
  const Tile Q{dynamic_shared<float>()}, K{Q.data + Tile::kElements}, S{K.data + Tile::kElements};
  const int n = int(blockIdx.x) % N, head = int(blockIdx.x) / N, b = head / a.H, h = head % a.H;
  const int t = n * kChunkLength, rows = a.L - t, j = int(blockIdx.y) * kColumns;
  const float* state = states + std::int64_t(blockIdx.x) * a.Dk * a.Dv + j;

  float scores[4][4] = {}, O[4][kColumns / 16] = {};
  for (int d = 0; d < a.Dk; d += kTileRows) {
    load_tile(Q, a.q.row(b, h, t) + d, a.q.stride_l, rows, a.Dk - d);
    load_tile(K, a.k.row(b, h, t) + d, a.k.stride_l, rows, a.Dk - d);
    load_tile(S, state + std::int64_t(d) * a.Dv, a.Dv, a.Dk - d, a.Dv - j);
    __syncthreads();
    add_scores(scores, Q, K);
    add_product<false>(O, Q, S);
    __syncthreads();
  }
  const Tile &P = Q, &V = K;
  store_masked(P, scores);
  load_tile(V, a.v.row(b, h, t) + j, a.v.stride_l, rows, a.Dv - j);
  __syncthreads();
  add_product<true>(O, P, V);

#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int row = tile_y() + 16 * r;
    if (row < rows) store_row(a.o.row(b, h, t + row) + j, O[r], a.scale, a.Dv - j);
  }
}

}  // namespace

void materialized(const FloatArguments& a) {
  const int N = ceil_div(a.L, kChunkLength), row_tiles = ceil_div(a.Dk, kTileRows);
  const auto heads = unsigned(a.B * a.H), chunks = heads * unsigned(N);
  const auto column_tiles = unsigned(ceil_div(a.Dv, kColumns));
  const std::size_t tile_bytes = Tile::kElements * sizeof(float);
  float* states = workspace<float>("chunk_states", std::size_t(materialized_memory(a)) / sizeof(float));
  launch(chunk_states_kernel, {dim3(chunks, unsigned(row_tiles) * column_tiles), kTileThreads, 2 * tile_bytes}, a, N,
         states);
  launch(running_sum_kernel, {dim3(heads, unsigned(ceil_div(a.Dk * a.Dv, kTileThreads))), kTileThreads}, a, N, states);
  launch(outputs_kernel, {dim3(chunks, column_tiles), kTileThreads, 3 * tile_bytes}, a, N, states);
}

}  // namespace tutorial::linear_attention
