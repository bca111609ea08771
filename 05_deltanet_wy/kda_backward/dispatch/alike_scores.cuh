#pragma once
/// @file
/// What the gradients need of a marked chunk (chunk/alike_keys.cuh) beyond the rows that contain their decays: these are
/// rounded, each by itself, and with keys that are alike so is what has to cancel. So P and A are computed once more from
/// q, k and g, in fp32, and the walks get what rounding leaves out of K- and of P.
///
/// A lane multiplies what it has of a warp's row of blocks, element by element, with an exponential for each pair and
/// column, which serves both P and A. That takes several times as long as the products that it replaces. But exponents
/// are differences within a chunk, never above 0, and gates of any strength need no other way.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/block_rows.cuh"
#include "05_deltanet_wy/kda.hpp"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::kda {

/// Whether too many keys of the warp's 16 are alike (delta_rule::kMostAlike), in all lanes.
/// @param A row r of the blocks of the products of keys, without beta; what is on and above the diagonal does not count
/// @param factors f of the 64 keys, which are not in A, or null
__device__ __forceinline__ bool are_alike(const delta_rule::BlockRow& A, int r, const float* factors = nullptr) {
  using delta_rule::kBlock;
  float sums[2] = {};  // of the lane's part of two rows
  const int lane = int(lane_index());
#pragma unroll
  for (int c = 0; c < delta_rule::kBlocks; ++c) {
    if (c > r) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = lane / 4 + i % 4 / 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float x = c < r || column < row ? A[c][i / 4][i % 4] : 0.0f;
      if (factors) x *= factors[r * kBlock + row] * factors[c * kBlock + column];
      sums[i % 4 / 2] += x * x;
    }
  }
#pragma unroll
  for (float& sum : sums) {
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
  }
  return __any_sync(kAllLanes, fmaxf(sums[0], sums[1]) > delta_rule::kMostAlike) != 0;
}

/// Some columns of a chunk in shared memory.
struct AlikeSlice {
  static constexpr int kColumns = 8, kStride = kColumns + 1;  // so that rows lie in different banks
  static constexpr int kRows = tile::kChunk * kStride, kTotals = delta_rule::kBlocks * kColumns;
  static constexpr int kBytes = (3 * kRows + kTotals) * int(sizeof(float));

  float* q;       ///< [64, 8]
  float* k;       ///< [64, 8]
  float* b;       ///< [64, 8], base-2 logarithms of the decays from the start of the row's block of 16 on
  float* totals;  ///< those of blocks, [4, 8]

  /// @param memory kBytes
  __device__ __forceinline__ explicit AlikeSlice(float* memory)
      : q(memory), k(q + kRows), b(k + kRows), totals(b + kRows) {}
};

/// P, A = row r of the blocks of the scores with q and with k as queries, with the keys' factors, without beta, in fp32.
/// What is above the diagonal has no meaning. Called by all four warps of a block, which have passed a barrier since they
/// have used the memory, and pass one before they call `rounded`, and one before this returns.
/// @param t the chunk's first position @param factors f of the 64 keys, or null
/// @param memory of an AlikeSlice
/// @param rounded rounded(row, column): the element of K- that the kernels read
/// @param put_error put_error(row, column, x): takes what it lacks
template <class Rounded, class PutError>
__device__ __forceinline__ void scores_of_alike_keys(delta_rule::BlockRow& P, delta_rule::BlockRow& A,
                                                     const Bf16Arguments& a, int b, int h, int t, int warp, int r,
                                                     const float* factors, float* memory, Rounded rounded,
                                                     PutError put_error) {
  using delta_rule::kBlock, delta_rule::kBlocks;
  constexpr int kOfLane = 4, kColumns = AlikeSlice::kColumns, kStride = AlikeSlice::kStride;
  const AlikeSlice slice(memory);
  const int lane = int(lane_index()), first = warp * kBlock + lane / kColumns * kOfLane, column = lane % kColumns;
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
#pragma unroll
    for (int i = 0; i < 8; ++i) P[c][i / 4][i % 4] = A[c][i / 4][i % 4] = 0;
  }
#pragma unroll 1
  for (int start = 0; start < a.Dk; start += kColumns) {
    const int d = start + column;
    float sums[kOfLane], sum = 0, keys[kOfLane];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const int row = first + i, position = min(t + row, a.L - 1);
      const bool exists = t + row < a.L;
      sum += exists ? tile::base2(load_global(a.g.row(b, h, position) + d)) : 0;
      sums[i] = sum;
      keys[i] = exists ? __bfloat162float(load_global(a.k.row(b, h, position) + d)) : 0;
      slice.k[row * kStride + column] = keys[i];
      slice.q[row * kStride + column] = exists ? __bfloat162float(load_global(a.q.row(b, h, position) + d)) : 0;
    }
    float before = 0;  // of the block's rows that other lanes have
#pragma unroll
    for (int group = 0; group < kBlock / kOfLane - 1; ++group) {
      const float other = __shfl_sync(kAllLanes, sum, group * kColumns + column);
      if (lane / kColumns > group) before += other;
    }
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      sums[i] += before;
      slice.b[(first + i) * kStride + column] = sums[i];
    }
    if (lane / kColumns == kBlock / kOfLane - 1) slice.totals[warp * kColumns + column] = sums[kOfLane - 1];
    __syncthreads();
    float end = 0;  // of the chunk, from the start of the warp's block on
    for (int w = warp; w < kBlocks; ++w) end += slice.totals[w * kColumns + column];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
      const float f = factors ? factors[first + i] : 1;
      put_error(first + i, d, f * keys[i] * tile::ex2(end - sums[i]) - rounded(first + i, d));
    }
    const float* of_row = slice.b + (r * kBlock + lane / 4) * kStride;
    const float* of_column = slice.b + lane % 4 * 2 * kStride;
    const int to_q = int(slice.q - slice.b), to_k = int(slice.k - slice.b);
#pragma unroll 1
    for (int x = 0; x < kColumns; ++x) {
      float from[2], q[2], k[2], between = 0;  // decays of whole blocks between the two
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* row = of_row + half * 8 * kStride + x;
        from[half] = row[0], q[half] = row[to_q], k[half] = row[to_k];
      }
#pragma unroll
      for (int c = kBlocks - 1; c >= 0; --c) {
        if (c > r) continue;
        if (c < r) between += slice.totals[c * kColumns + x];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float* key = of_column + (c * kBlock + e / 2 * 8 + e % 2) * kStride + x;
          const float of_key = key[to_k], to = between - key[0];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const float decayed = of_key * tile::ex2(fminf(from[half] + to, 0));
            P[c][e / 2][half * 2 + e % 2] += q[half] * decayed;
            A[c][e / 2][half * 2 + e % 2] += k[half] * decayed;
          }
        }
      }
    }
    __syncthreads();  // no warp needs these columns any more
  }
  if (!factors) return;
  delta_rule::for_each_element(P, r, [&](int, int i, float& x) { x *= factors[i]; });
  delta_rule::for_each_element(A, r, [&](int row, int i, float& x) { x *= factors[row] * factors[i]; });
}

}  // namespace tutorial::kda
