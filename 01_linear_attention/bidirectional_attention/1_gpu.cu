/// @file
/// `gpu`: the two products, tile by tile, on the device.
///
/// Idea: a product is cut into tiles of 64 x 64, one per block. The block walks along the summed dimension, 16 elements
/// at a time. It loads 16 rows of both factors into shared memory and uses each element 64 times. phi is computed
/// during the load, so phi(Q) and phi(K) are never stored. z is again one more column of S.
/// Grows out of: 01_linear_attention/causal_attention/2_gpu.cu
/// Improves on: `eigen` uses the few cores of a CPU, and stores phi(Q) and phi(K).
/// Unchanged: two products.
/// Equation:
///
///   1. state:   S_m = phi(K_m)^T [V_m, 1]            K_m, V_m: segment m of the keys
///   2. sum:     S = sum_m S_m
///   3. output:  O = phi(Q) S[:, :Dv] / (phi(Q) S[:, Dv] + eps)
///
/// S has few tiles (one, at Dk = Dv = 64), and B H Dk Dv / 64^2 blocks would leave most of the GPU idle. So the keys
/// are cut into enough segments to fill the GPU. Each segment leaves a partial S in the workspace, and step 2 adds the
/// parts up in a fixed order. So two runs give the same bits, which they would not with atomics.
/// Shapes: q [B, H, L, Dk]; k [B, H, Lk, Dk]; v [B, H, Lk, Dv]; o [B, H, L, Dv]; workspace S_m [segments, B, H,
/// Dk, Dv + 1] and S [B, H, Dk, Dv + 1], all fp32 in device memory.
/// Thread mapping: 256 threads per block. Thread (x, y) has the 4 x 4 elements of the tile at rows y + 16 r, columns x
/// + 16 c, in registers. Neighbouring threads read neighbouring words of a row of shared memory, which causes no bank
/// conflicts.
/// Resources: 16 registers for the tile, 20 for operands and normaliser; two tiles of 16 x 66 floats in shared memory,
/// 8.4 KB.
/// Work: 2 (L + Lk) Dk (Dv + 1) operations per head.
/// Bytes: k and q Dv / 64 times, v Dk / 64 times, o once; a state per segment written and read, S L / 64 times from the
/// second-level cache.
/// Bound by: reads of shared memory, 8 for 16 multiply-adds, so at most half the fp32 rate. In practice it is bound by
/// the loads of each slice, which nothing within the block overlaps.
/// Requires: B H <= 65535.
/// Weakness: it has one buffer where `lmha` has two, and it does not use tensor cores, which compute such products many
/// times faster.
/// Sources: arXiv 2006.16236, equations 5 and 6; tiles through shared memory as for any matrix product on a GPU.

#include <cuda_runtime.h>

#include <algorithm>

#include "01_linear_attention/attention.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"
#include "common/feature_map.hpp"

namespace tutorial::bidirectional_attention {
namespace {

constexpr int kTile = 64;   // rows and columns of a tile of the result
constexpr int kDepth = 16;  // of the summed dimension in shared memory at a time
constexpr int kThreads = 256;
/// A row of a tile in shared memory has two words of padding. q is stored down a column, 16 elements e of 2 rows r by a
/// warp: without padding 16 of them would fall into one of the 32 banks. With it, 66 e + r fall into 32 different
/// banks.
constexpr int kRow = kTile + 2;

/// acc += left^T right and sum += left^T weight for one depth slice; thread (x, y) has rows y + 16 r and columns x
/// + 16 c of the tile. `weight(i)` is one more column of `right`, the one that the normaliser needs.
template <class Weight>
__device__ void multiply(float (&acc)[4][4], float (&sum)[4], const float (&left)[kDepth][kRow],
                         const float (&right)[kDepth][kRow], Weight weight, int x, int y) {
#pragma unroll
  for (int i = 0; i < kDepth; ++i) {  // the 16 elements of a slice
    float row[4], column[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) row[r] = left[i][y + 16 * r];
#pragma unroll
    for (int c = 0; c < 4; ++c) column[c] = right[i][x + 16 * c];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      sum[r] += row[r] * weight(i);
#pragma unroll
      for (int c = 0; c < 4; ++c) acc[r][c] += row[r] * column[c];
    }
  }
}

/// Grid (Dk tiles x Dv tiles, B H, segments): S_m[d, j] = sum_i phi(k_i)[d] [v_i, 1][j] over segment m.
__global__ void __launch_bounds__(kThreads)
    state_kernel(AttentionArguments a, int segment_length, float* partial_states /* [segments, B, H, Dk, Dv + 1] */) {
  __shared__ float k_tile[kDepth][kRow], v_tile[kDepth][kRow];
  const int b = int(blockIdx.y) / a.H, h = int(blockIdx.y) % a.H, m = int(blockIdx.z);
  const int column_tiles = (a.Dv - 1) / kTile + 1;
  const int d0 = int(blockIdx.x) / column_tiles * kTile, j0 = int(blockIdx.x) % column_tiles * kTile;
  const int x = int(threadIdx.x) % 16, y = int(threadIdx.x) / 16;
  const int keys = a.key_lengths ? min(load_global(&a.key_lengths[b]), a.Lk) : a.Lk;
  const int first = m * segment_length, last = min(first + segment_length, keys);

  float acc[4][4] = {}, z[4] = {};
  for (int i0 = first; i0 < last; i0 += kDepth) {
    for (int index = int(threadIdx.x); index < kDepth * kTile; index += kThreads) {
      const int i = index / kTile, d = d0 + index % kTile, j = j0 + index % kTile;
      const bool has_key = i0 + i < last;
      k_tile[i][index % kTile] = has_key && d < a.Dk ? phi(load_global(&a.k.row(b, h, i0 + i)[d])) : 0;
      v_tile[i][index % kTile] = has_key && j < a.Dv ? load_global(&a.v.row(b, h, i0 + i)[j]) : 0;
    }
    __syncthreads();
    multiply(
        acc, z, k_tile, v_tile, [](int) { return 1.0f; }, x, y);
    __syncthreads();
  }
  const auto row_length = std::size_t(a.Dv + 1);
  float* S = partial_states + (std::size_t(m) * gridDim.y + blockIdx.y) * std::size_t(a.Dk) * row_length;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int d = d0 + y + 16 * r;
    if (d >= a.Dk) continue;
    float* row = S + std::size_t(d) * row_length;
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int j = j0 + x + 16 * c;
      if (j < a.Dv) store_global(&row[j], acc[r][c]);
    }
    if (j0 == 0 && x == 0) store_global(&row[a.Dv], z[r]);
  }
}

/// S[i] = sum_m S_m[i], with one thread per element.
__global__ void sum_kernel(const float* partial_states, int segments, std::size_t size, float* S) {
  const std::size_t i = std::size_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= size) return;
  float sum = 0;
  for (int m = 0; m < segments; ++m) sum += load_global(&partial_states[std::size_t(m) * size + i]);
  store_global(&S[i], sum);
}

/// Grid (L tiles, Dv tiles, B H): a 64 x 64 tile of o.
__global__ void __launch_bounds__(kThreads) output_kernel(AttentionArguments a, const float* states) {
  __shared__ float q_tile[kDepth][kRow], S_tile[kDepth][kRow], z_tile[kDepth];
  const int b = int(blockIdx.z) / a.H, h = int(blockIdx.z) % a.H;
  const int t0 = int(blockIdx.x) * kTile, j0 = int(blockIdx.y) * kTile;
  const int x = int(threadIdx.x) % 16, y = int(threadIdx.x) / 16;
  const float* S = states + std::size_t(blockIdx.z) * std::size_t(a.Dk) * std::size_t(a.Dv + 1);

  float acc[4][4] = {}, normaliser[4] = {a.eps, a.eps, a.eps, a.eps};
  for (int d0 = 0; d0 < a.Dk; d0 += kDepth) {
    for (int index = int(threadIdx.x); index < kDepth * kTile; index += kThreads) {
      const int e = index % kDepth, r = index / kDepth;  // along d first, as q lies in memory
      const bool inside = t0 + r < a.L && d0 + e < a.Dk;
      q_tile[e][r] = inside ? phi(load_global(&a.q.row(b, h, t0 + r)[d0 + e])) : 0;
      const int i = index / kTile, j = j0 + index % kTile;
      const float* S_d = S + std::size_t(d0 + i) * std::size_t(a.Dv + 1);
      S_tile[i][index % kTile] = d0 + i < a.Dk && j < a.Dv ? load_global(&S_d[j]) : 0;
      if (index % kTile == 0) z_tile[i] = d0 + i < a.Dk ? load_global(&S_d[a.Dv]) : 0;
    }
    __syncthreads();
    multiply(
        acc, normaliser, q_tile, S_tile, [&](int i) { return z_tile[i]; }, x, y);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int t = t0 + y + 16 * r, j = j0 + x + 16 * c;
      if (t < a.L && j < a.Dv) store_global(&a.o.row(b, h, t)[j], acc[r][c] / normaliser[r]);
    }
  }
}

}  // namespace

void gpu(const Arguments& a) {
  const int multiprocessors = multiprocessor_count();
  const int heads = a.B * a.H;
  const int state_tiles = ((a.Dk - 1) / kTile + 1) * ((a.Dv - 1) / kTile + 1);
  // About four blocks per multiprocessor, but no segment is shorter than a tile of keys.
  const int wanted = (4 * multiprocessors - 1) / (state_tiles * heads) + 1;
  const int segments = std::clamp(wanted, 1, (a.Lk - 1) / kTile + 1);
  const int segment_length = (a.Lk - 1) / segments + 1;

  const std::size_t state_size = std::size_t(heads) * std::size_t(a.Dk) * std::size_t(a.Dv + 1);
  float* partial_states = workspace<float>("bidirectional partial states", std::size_t(segments) * state_size);
  float* S = workspace<float>("bidirectional state", state_size);
  launch(state_kernel, {dim3(unsigned(state_tiles), unsigned(heads), unsigned(segments)), kThreads}, a, segment_length,
         partial_states);
  launch(sum_kernel, {unsigned((state_size - 1) / kThreads + 1), kThreads}, partial_states, segments, state_size, S);
  const dim3 tiles(unsigned((a.L - 1) / kTile + 1), unsigned((a.Dv - 1) / kTile + 1), unsigned(heads));
  launch(output_kernel, {tiles, kThreads}, a, S);
}

}  // namespace tutorial::bidirectional_attention
