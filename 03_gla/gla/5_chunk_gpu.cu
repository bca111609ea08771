/// @file
/// `chunk_gpu`: chunks on the GPU, all at once, with gates.
///
/// Idea: chapter 02's `materialized` computes the states of all chunks at once, then their running sum, then all
/// outputs at once. With gates that still works if the sums of g begin anew in every chunk: all that a chunk needs of
/// other chunks is the state that it starts from. One more kernel in front writes these sums, because many blocks of
/// the other kernels need each of them.
/// Grows out of: 02_chunkwise/linear_attention/3_materialized.cu
/// Improves on: `chunkwise` has one CPU thread per head, which walks the chunks one after the other.
/// Unchanged: the three kernels of `materialized`, its tiles and blocks. The equations are those of `chunkwise` with C
/// = 64, without its second level.
/// Equation:
///
///     b_t = the sum of g / ln 2 from the chunk's first position up to t           gate_sums_kernel
///     X_n = (K_n . 2^(b_end - b))^T V_n                                           chunk_states_kernel
///     S_{n+1} = diag(2^b_end) S_n + X_n, S_n in the place of X_n                  running_sum_kernel
///     O_n = scale ((Q_n . 2^b) S_n + P V_n)                                       outputs_kernel
///     P_ti = sum_d Q_td K_id 2^(b_td - b_id), i <= t
///
/// The differences b_td - b_id must be accurate to about 1e-6, even if both sums are near -256 or -10000. fp32 cannot
/// hold that. So the sums are formed in double, one addition per gate, and stored as two fp32 numbers: `high`, the
/// rounded sum, and `low`, the rounding error. The difference of two sums is the difference of their high parts, which
/// is exact if both are close, plus that of the low parts. Above the diagonal the exponent is positive and the power
/// may be infinite: these scores are not multiplied by 0, they are replaced by it.
/// Shapes: q, k, g [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; high, low [B, H, L, Dk];
/// states [B, H, N, Dk, Dv] for the N = ceil(L / 64) chunks; all fp32 in device memory.
/// Thread mapping: in gate_sums_kernel one thread per column of a chunk's g. The other kernels as in `materialized`: in
/// chunk_states_kernel and outputs_kernel one block per chunk and tile of 64 x 64, 4 x 4 elements per thread
/// (float_tile.cuh); in running_sum_kernel one thread per element of a state.
/// Resources: 34 KB and 85 KB of shared memory; 16 sums of each product in registers.
/// Work: chapter 02's, 2 Dk Dv + 64 / 2 (Dk + Dv) multiply-adds per position. Exponentials per gate and tile of
/// columns: 40 for the scores, of which 32.5 are of pairs with i <= t and the others lie in the 16 x 16 blocks on the
/// diagonal; one each for Q, for K and for the states.
/// Bytes: those of `materialized`, g, and 8 L Dk per head for the sums, written once and read by both other kernels.
/// Bound by: the exponentials in the scores: a multiprocessor computes one in the time of eight multiply-adds.
/// Requires: states of at most 4095 tiles.
/// Weakness: tensor cores cannot compute scores pair by pair, and every tile of columns computes the scores again.
/// Sources: arXiv 2312.06635, section 4.2; chapter 02's `materialized`.

#include <cuda_runtime.h>

#include "03_gla/gla.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/base2.cuh"
#include "common/tile/float_tile.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kChunkLength = kTileRows;
constexpr int kColumns = 64;  // of a tile
constexpr int kAhead = 8;     // chunks that the running sum reads at a time
using Tile = FloatTile<kColumns>;

/// b = high + low: sums of g / ln 2 from the start of their chunk.
struct GateSums {
  View<float> high, low;
};

/// Grid (B H N, ceil(Dk / kTileThreads)).
__global__ void gate_sums_kernel(FloatArguments a, int N, GateSums sums) {
  const int n = int(blockIdx.x) % N, head = int(blockIdx.x) / N, b = head / a.H, h = head % a.H;
  const int first = n * kChunkLength, d = int(blockIdx.y) * kTileThreads + int(threadIdx.x);
  if (d >= a.Dk) return;
  double sum = 0;
#pragma unroll 8
  for (int t = first; t < min(first + kChunkLength, a.L); ++t) {
    sum += double(base2(load_global(&a.g.row(b, h, t)[d])));
    const auto high = float(sum);
    store_global(&sums.high.row(b, h, t)[d], high);
    store_global(&sums.low.row(b, h, t)[d], float(sum - double(high)));
  }
}

/// K becomes K . 2^(b_end - b). Each thread multiplies the elements that it has loaded itself with load_tile(), so no
/// barrier is needed between the two.
/// @param t,d position and row of the state that the tile begins with
__device__ __forceinline__ void decay_to_end(const Tile& K, const FloatArguments& a, const GateSums& sums, int b, int h,
                                             int t, int d) {
  const int column = int(threadIdx.x) % kColumns, end = min(t + kChunkLength, a.L) - 1;
  if (d + column >= a.Dk) return;
  const float *high = sums.high.row(b, h, 0) + d + column, *low = sums.low.row(b, h, 0) + d + column;
  const float end_high = load_global(high + end * sums.high.stride_l),
              end_low = load_global(low + end * sums.low.stride_l);
  for (int row = int(threadIdx.x) / kColumns; t + row <= end; row += kTileThreads / kColumns) {
    const std::int64_t at = (t + row) * sums.high.stride_l;
    *K.at(row, column) *= exp2f((end_high - load_global(high + at)) + (end_low - load_global(low + at)));
  }
}

/// Grid (B H N, tiles of the state).
__global__ void __launch_bounds__(kTileThreads, 2)
    chunk_states_kernel(FloatArguments a, int N, GateSums sums, float* states) {
  const Tile K{dynamic_shared<float>()}, V{K.data + Tile::kElements};
  const int n = int(blockIdx.x) % N, head = int(blockIdx.x) / N, b = head / a.H, h = head % a.H;
  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int d = int(blockIdx.y) / tiles * kTileRows, j = int(blockIdx.y) % tiles * kColumns;  // the tile's corner
  const int t = n * kChunkLength;

  load_tile(K, a.k.row(b, h, t) + d, a.k.stride_l, a.L - t, a.Dk - d);
  load_tile(V, a.v.row(b, h, t) + j, a.v.stride_l, a.L - t, a.Dv - j);
  decay_to_end(K, a, sums, b, h, t, d);
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
__global__ void running_sum_kernel(FloatArguments a, int N, GateSums sums, float* states) {
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
      const int end = min((n + i + 1) * kChunkLength, a.L) - 1;
      decay[i] = i < count ? exp2f(load_global(&sums.high.row(b, h, end)[d])) : 1.0f;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (i < count) store_global(&place[i * size], S);
      S = decay[i] * S + X[i];
    }
  }
  if (a.final_state.data) store_global(&a.final_state.row(b, h, d)[j], S);
}

/// P += (Q K^T with decays), sums of the rows y + 16 r and the columns x + 16 c where c <= r, of 64 of the Dk.
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
          const float difference = (q_high[r].of[e] - k_high.of[e]) + (q_low[r].of[e] - k_low.of[e]);
          P[r][c] += q[r].of[e] * k.of[e] * exp2f(difference);
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
  const Tile Q{dynamic_shared<float>()}, K{Q.data + Tile::kElements}, S{K.data + Tile::kElements};
  const Tile high{S.data + Tile::kElements}, low{high.data + Tile::kElements};
  const int n = int(blockIdx.x) % N, head = int(blockIdx.x) / N, b = head / a.H, h = head % a.H;
  const int t = n * kChunkLength, rows = a.L - t, j = int(blockIdx.y) * kColumns;
  const float* state = states + std::int64_t(blockIdx.x) * a.Dk * a.Dv + j;

  float scores[4][4] = {}, O[4][kColumns / 16] = {};
  for (int d = 0; d < a.Dk; d += kTileRows) {
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

}  // namespace

void chunk_gpu(const FloatArguments& a) {
  const int N = ceil_div(a.L, kChunkLength), row_tiles = ceil_div(a.Dk, kTileRows);
  const auto heads = unsigned(a.B * a.H), chunks = heads * unsigned(N);
  const auto column_tiles = unsigned(ceil_div(a.Dv, kColumns));
  const std::size_t tile_bytes = Tile::kElements * sizeof(float);
  float* high =
      workspace<float>("gla: sums of gates and chunk states", std::size_t(chunk_gpu_memory(a)) / sizeof(float));
  float *low = high + gate_count(a), *states = low + gate_count(a);
  const GateSums sums{packed(high, a.H, a.L, a.Dk), packed(low, a.H, a.L, a.Dk)};
  launch(gate_sums_kernel, {dim3(chunks, unsigned(ceil_div(a.Dk, kTileThreads))), kTileThreads}, a, N, sums);
  launch(chunk_states_kernel, {dim3(chunks, unsigned(row_tiles) * column_tiles), kTileThreads, 2 * tile_bytes}, a, N,
         sums, states);
  launch(running_sum_kernel, {dim3(heads, unsigned(ceil_div(a.Dk * a.Dv, kTileThreads))), kTileThreads}, a, N, sums,
         states);
  launch(outputs_kernel, {dim3(chunks, column_tiles), kTileThreads, 5 * tile_bytes}, a, N, sums, states);
}

}  // namespace tutorial::gla
