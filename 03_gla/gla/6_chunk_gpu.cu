/// @file
/// Stage 6, `chunk_gpu`: chunks on the GPU, all at once; chapter 02's `materialized` with gates.
///
/// Idea: with sums of gates that begin anew in every chunk, a chunk's state, its scores and its outputs need nothing of
/// other chunks but the state that it starts from. A kernel first writes these sums, because each of them is needed by
/// many blocks of the other kernels.
/// Mends: stage 5 takes L steps in line. Same: the equations of stage 4 with C = 64, but one level of them.
///
///   b_t = the sum of g / ln 2 from the chunk's first position up to t           gate_sums_kernel
///   X_n = (K_n . 2^(b_end - b))^T V_n                                           chunk_states_kernel
///   S_n = diag(2^b_end) S_{n-1} + X_n, S_{n-1} in the place of X_n              scan_kernel
///   O_n = scale ((Q_n . 2^b) S_{n-1} + P V_n)                                   outputs_kernel
///   P_ti = sum_d Q_td K_id 2^(b_td - b_id), i <= t
///
/// The differences in P must be right to 1e-6 or so, be there a sum of -256 or of -10000 in front of both: that is
/// beyond fp32. So a sum is made in double, of which there is one addition a gate, and handed on as two fp32 numbers,
/// `high`, the sum rounded, and `low`, what that has left out. The difference of two sums is the difference of the high
/// parts, which is exact where it matters (where both are close), plus that of the low ones. Two more additions in a
/// loop that waits for exponentials.
/// Above the diagonal the exponent is positive and the power may be infinite: these scores are not multiplied by 0, but
/// replaced by it.
///
/// Shapes: q, k, g [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; high, low [B, H, L, Dk];
/// states [B, H, N, Dk, Dv] for the N = ceil(L / 64) chunks; all fp32 in device memory.
/// Who does what: in the first kernel a thread walks a column of a chunk's gates; in the second block (b h n, tile) has
/// a 64 x 64 tile of X_n, in the last one a tile of 64 columns of O_n, and a thread has 4 x 4 of it (float_tile.cuh of
/// chapter 02). In the third a thread has one element of a state, and walks the chunks.
/// Resources: 34 KB and 85 KB of shared memory; 16 sums of each product in registers.
/// Work: chapter 02's, 2 Dk Dv + 64 / 2 (Dk + Dv) multiply-adds a position; and 40 exponentials for each gate and tile
/// of columns: 32.5 that pairs need, and those that the diagonal's blocks of 16 x 16 have too many; and one each for Q,
/// for K and for the states. Bytes: those of chapter 02, g, and the sums, 8 L Dk a head, written once and read in both
/// other kernels.
/// Limit: exponentials, of which a multiprocessor does one for every eight multiply-adds. Needs: states of at most 4095
/// tiles; nothing of strides and gates.
/// Weakness: pair by pair no tensor core can help, and every tile of columns computes the scores again. Stage 7 has
/// stage 4's second level, on tensor cores, and the rest of the pairs once.
/// Source: arXiv 2312.06635, section 4.2; chapter 02's `materialized`.

#include <cuda_runtime.h>

#include <climits>

#include "02_chunkwise/float_tile.cuh"
#include "03_gla/gla.hpp"
#include "03_gla/gla/base2.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::gla {
namespace {

using namespace linear_attention;  // the tiles

constexpr int kChunkLength = kTileRows;
constexpr int kColumns = 64;  // of a tile
constexpr int kAhead = 8;     // chunks that the scan reads at a time
using Tile = FloatTile<kColumns>;

int divided_up(int count, int by) {
  return (count - 1) / by + 1;
}

/// Sums of gates from the start of their chunk: high + low.
struct GateSums {
  View<float> high, low;
};

/// A block's chunk.
struct Chunk {
  int b, h, t;

  __device__ __forceinline__ Chunk(const FloatArguments& a, int N)
      : b(int(blockIdx.x) / N / a.H), h(int(blockIdx.x) / N % a.H), t(int(blockIdx.x) % N * kChunkLength) {}
};

/// Grid (B H N, ceil(Dk / kTileThreads)).
__global__ void gate_sums_kernel(FloatArguments a, int N, GateSums sums) {
  const Chunk chunk(a, N);
  const int d = int(blockIdx.y) * kTileThreads + int(threadIdx.x);
  if (d >= a.Dk) return;
  double sum = 0;
#pragma unroll 8
  for (int t = chunk.t; t < min(chunk.t + kChunkLength, a.L); ++t) {
    sum += double(base2(load_global(&a.g.row(chunk.b, chunk.h, t)[d])));
    const auto high = float(sum);
    store_global(&sums.high.row(chunk.b, chunk.h, t)[d], high);
    store_global(&sums.low.row(chunk.b, chunk.h, t)[d], float(sum - double(high)));
  }
}

/// K, whose rows and columns from position t and row d of the state on load_tile() has loaded, becomes K . 2^(b_end -
/// b). Each thread does the elements that it has loaded.
__device__ __forceinline__ void decay_to_end(const Tile& K, const FloatArguments& a, const GateSums& sums,
                                             const Chunk& chunk, int d) {
  const int column = int(threadIdx.x) % kColumns, end = min(chunk.t + kChunkLength, a.L) - 1;
  if (d + column >= a.Dk) return;
  const float end_high = load_global(&sums.high.row(chunk.b, chunk.h, end)[d + column]);
  const float end_low = load_global(&sums.low.row(chunk.b, chunk.h, end)[d + column]);
  for (int row = int(threadIdx.x) / kColumns; chunk.t + row <= end; row += kTileThreads / kColumns) {
    const float high = load_global(&sums.high.row(chunk.b, chunk.h, chunk.t + row)[d + column]);
    const float low = load_global(&sums.low.row(chunk.b, chunk.h, chunk.t + row)[d + column]);
    *K.at(row, column) *= exp2f((end_high - high) + (end_low - low));
  }
}

/// Grid (B H N, tiles of the state).
__global__ void __launch_bounds__(kTileThreads, 2)
    chunk_states_kernel(FloatArguments a, int N, GateSums sums, float* states) {
  const Tile K{dynamic_shared<float>()}, V{K.data + Tile::kElements};
  const Chunk chunk(a, N);
  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int d = int(blockIdx.y) / tiles * kTileRows, j = int(blockIdx.y) % tiles * kColumns;  // the tile's corner

  load_tile(K, a.k.row(chunk.b, chunk.h, chunk.t) + d, a.k.stride_l, a.L - chunk.t, a.Dk - d);
  load_tile(V, a.v.row(chunk.b, chunk.h, chunk.t) + j, a.v.stride_l, a.L - chunk.t, a.Dv - j);
  decay_to_end(K, a, sums, chunk, d);
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

/// Leaves in each chunk's place the state that it starts from. Grid (B H, ceil(Dk Dv / kTileThreads)).
__global__ void scan_kernel(FloatArguments a, int N, View<const float> high, float* states) {
  const std::int64_t head = blockIdx.x, b = head / a.H, h = head % a.H;
  const int element = int(blockIdx.y * blockDim.x + threadIdx.x), d = element / a.Dv, j = element % a.Dv;
  if (d >= a.Dk) return;
  const std::int64_t size = std::int64_t(a.Dk) * a.Dv;
  float* place = states + head * N * size + element;

  float S = a.initial_state.data ? load_global(&a.initial_state.row(b, h, d)[j]) : 0.0f;
  for (int n = 0; n < N; n += kAhead, place += kAhead * size) {
    const int count = min(kAhead, N - n);
    float X[kAhead], decay[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      X[i] = i < count ? place[i * size] : 0.0f;
      decay[i] = i < count ? exp2f(load_global(&high.row(b, h, min((n + i + 1) * kChunkLength, a.L) - 1)[d])) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i >= count) continue;
      store_global(&place[i * size], S);
      S = decay[i] * S + X[i];
    }
  }
  if (a.final_state.data) store_global(&a.final_state.row(b, h, d)[j], S);
}

/// P += the scores of 64 of the Dk, sums of the rows y + 16 r and the columns x + 16 c where c <= r.
__device__ __forceinline__ void add_decayed_scores(float (&P)[4][4], const Tile& Q, const Tile& K, const Tile& high,
                                                   const Tile& low) {
#pragma unroll 1
  for (int d = 0; d < 64; d += 4) {
    Floats<4> q[4], q_high[4], q_low[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      q[r] = floats<4>(Q.at(tile_y() + 16 * r, d));
      q_high[r] = floats<4>(high.at(tile_y() + 16 * r, d));
      q_low[r] = floats<4>(low.at(tile_y() + 16 * r, d));
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const Floats<4> k = floats<4>(K.at(tile_x() + 16 * c, d));
      const Floats<4> k_high = floats<4>(high.at(tile_x() + 16 * c, d));
      const Floats<4> k_low = floats<4>(low.at(tile_x() + 16 * c, d));
#pragma unroll
      for (int r = c; r < 4; ++r) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float sum = (q_high[r].of[e] - k_high.of[e]) + (q_low[r].of[e] - k_low.of[e]);
          P[r][c] += q[r].of[e] * k.of[e] * exp2f(sum);
        }
      }
    }
  }
}

/// Q becomes Q . 2^b.
__device__ __forceinline__ void decay_from_start(const Tile& Q, const Tile& high) {
  const int column = int(threadIdx.x) % kColumns;
  for (int row = int(threadIdx.x) / kColumns; row < kTileRows; row += kTileThreads / kColumns) {
    *Q.at(row, column) *= exp2f(*high.at(row, column));
  }
}

/// Grid (B H N, tiles of the columns).
__global__ void __launch_bounds__(kTileThreads, 2)
    outputs_kernel(FloatArguments a, int N, GateSums sums, const float* states) {
  const auto tile = [&](int i) { return Tile{dynamic_shared<float>() + i * Tile::kElements}; };
  const Tile Q = tile(0), K = tile(1), high = tile(2), low = tile(3), S = tile(4);
  const Chunk chunk(a, N);
  const int b = chunk.b, h = chunk.h, t = chunk.t, rows = a.L - t, j = int(blockIdx.y) * kColumns;
  const float* state = states + std::int64_t(blockIdx.x) * a.Dk * a.Dv + j;

  float scores[4][4] = {}, O[4][kColumns / 16] = {};
  for (int d = 0; d < a.Dk; d += 64) {
    load_tile(Q, a.q.row(b, h, t) + d, a.q.stride_l, rows, a.Dk - d);
    load_tile(K, a.k.row(b, h, t) + d, a.k.stride_l, rows, a.Dk - d);
    load_tile(high, sums.high.row(b, h, t) + d, sums.high.stride_l, rows, a.Dk - d);
    load_tile(low, sums.low.row(b, h, t) + d, sums.low.stride_l, rows, a.Dk - d);
    load_tile(S, state + std::int64_t(d) * a.Dv, a.Dv, a.Dk - d, a.Dv - j);
    __syncthreads();
    add_decayed_scores(scores, Q, K, high, low);
    __syncthreads();
    decay_from_start(Q, high);
    __syncthreads();
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

std::int64_t gate_count(const FloatArguments& a) {
  return std::int64_t(a.B) * a.H * a.L * a.Dk;
}

std::int64_t state_count(const FloatArguments& a) {
  return std::int64_t(a.B) * a.H * divided_up(a.L, kChunkLength) * a.Dk * a.Dv;
}

}  // namespace

void chunk_gpu(const FloatArguments& a) {
  const int N = divided_up(a.L, kChunkLength), row_tiles = divided_up(a.Dk, kTileRows);
  const auto heads = unsigned(a.B * a.H), chunks = heads * unsigned(N);
  const auto column_tiles = unsigned(divided_up(a.Dv, kColumns));
  const std::size_t tile_bytes = Tile::kElements * sizeof(float);
  float* states = workspace<float>("gla: chunk states", std::size_t(state_count(a)));
  float* high = workspace<float>("gla: gate sums", 2 * std::size_t(gate_count(a)));
  const GateSums sums{packed(high, a.H, a.L, a.Dk), packed(high + gate_count(a), a.H, a.L, a.Dk)};

  launch(gate_sums_kernel, {dim3(chunks, unsigned(divided_up(a.Dk, kTileThreads))), kTileThreads}, a, N, sums);
  launch(chunk_states_kernel, {dim3(chunks, unsigned(row_tiles) * column_tiles), kTileThreads, 2 * tile_bytes}, a, N,
         sums, states);
  launch(scan_kernel, {dim3(heads, unsigned(divided_up(a.Dk * a.Dv, kTileThreads))), kTileThreads}, a, N,
         packed<const float>(high, a.H, a.L, a.Dk), states);
  launch(outputs_kernel, {dim3(chunks, column_tiles), kTileThreads, 5 * tile_bytes}, a, N, sums, states);
}

std::string chunk_gpu_limits(const FloatArguments& a) {
  if (std::int64_t(a.B) * a.H * divided_up(a.L, kChunkLength) > INT_MAX) {
    return "B H > 2^31 - 1 chunks of 64: the grid's first dimension";
  }
  constexpr int kMostTiles = 65535 / (kTileRows * kColumns / kTileThreads);
  if (std::int64_t(divided_up(a.Dk, kTileRows)) * divided_up(a.Dv, kColumns) > kMostTiles) {
    return "a state of more than 4095 tiles of 64 x 64: the grid's second dimension";
  }
  if (a.L > INT_MAX - kChunkLength) return "L > 2^31 - 65: positions are counted in int";
  return "";
}

std::int64_t chunk_gpu_memory(const FloatArguments& a) {
  return 4 * (state_count(a) + 2 * gate_count(a));
}

}  // namespace tutorial::gla
