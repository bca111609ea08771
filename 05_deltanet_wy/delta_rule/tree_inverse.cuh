#pragma once
/// @file
/// X = (I + A)^-1 of a chunk, A strictly lower triangular [64, 64], by the four warps of a warpgroup that works beside
/// others. The same blocks of 16 x 16 as in chunk_inverse.cuh, put together in pairs: fewer products in line, and every
/// factor of a product is in shared memory as it is used, split into two bf16.
///
/// With N = -A, and the two halves of a chunk as L = blocks 2 and 3, U = blocks 0 and 1,
///
///     X_10 = (X_11 N_10) X_00,    X_32 = (X_33 N_32) X_22,    X_LU = (X_LL N_LU) X_UU
///
///     warp   substitution   pair          half
///     0      X_00                         X_30        the longest: X_32 N_2. + X_33 N_3., times X_00 and X_10
///     1      X_11           X_10          X_21
///     2      X_22                         X_20
///     3      X_33           X_32          X_31
///
/// The first factor of each product needs nothing of other pairs, and the sums of X N are, split, the left factor of what
/// follows, in the registers where they are. The warps meet three times: when the memory is free, when the inverses on the
/// diagonal are there, and when the pairs are.
/// Source: Yang et al., arXiv 2406.06484, section 3.2.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule/blocks.hpp"
#include "05_deltanet_wy/delta_rule/chunk_inverse.cuh"
#include "05_deltanet_wy/delta_rule/split.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/warp.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

/// A block of 16 x 16 in shared memory as two bf16: rows of 32 bytes. The two units of 16 bytes of a row change places
/// with every fourth row, against bank conflicts.
struct SplitBlock {
  __nv_bfloat16* row;  ///< the one whose address the lane gives to ldmatrix and stmatrix: TreeMemory::row()

  static constexpr int kElements = 2 * kBlock * kBlock;  ///< the high parts, then the low ones

  /// Writes it.
  __device__ __forceinline__ void store(const SplitFragment<4>& x) const {
    stmatrix(row, x.high);
    stmatrix(row + kBlock * kBlock, x.low);
  }
  /// As the left factor of a product.
  __device__ __forceinline__ SplitFragment<4> left() const {
    SplitFragment<4> a;
    ldmatrix_x4(a.high, row);
    ldmatrix_x4(a.low, row + kBlock * kBlock);
    return a;
  }
};

/// sums += a B, B in shared memory.
__device__ __forceinline__ void add_product(BlockSums& sums, const SplitFragment<4>& a, const SplitBlock& B) {
  std::uint32_t high[4], low[4];
  ldmatrix_x4_trans(high, B.row);
  ldmatrix_x4_trans(low, B.row + kBlock * kBlock);
#pragma unroll
  for (int n = 0; n < 2; ++n) mma_m16n8k16(sums[n], a.low, {high[2 * n], high[2 * n + 1]});
#pragma unroll
  for (int n = 0; n < 2; ++n) mma_m16n8k16(sums[n], a.high, {low[2 * n], low[2 * n + 1]});
#pragma unroll
  for (int n = 0; n < 2; ++n) mma_m16n8k16(sums[n], a.high, {high[2 * n], high[2 * n + 1]});
}

/// What the warps hand each other.
struct TreeMemory {
  static constexpr int kBytes = 10 * SplitBlock::kElements * int(sizeof(__nv_bfloat16));

  __nv_bfloat16* data;      ///< aligned to 16 bytes
  int row = row_of_lane();  ///< where a block's row of this lane begins, in elements

  /// X_rc, both in the same half of the chunk, c <= r.
  __device__ __forceinline__ SplitBlock X(int r, int c) const { return {data + row + number(r, c) * kElements}; }
  /// N_rc, r in the lower half and c in the upper one.
  __device__ __forceinline__ SplitBlock N(int r, int c) const {
    return {data + row + (6 + (r - 2) * 2 + c) * kElements};
  }
  /// The place of X_rr for as many bytes of fp32.
  __device__ __forceinline__ float* diagonal(int r) const {
    return reinterpret_cast<float*>(data + number(r, r) * kElements);
  }

 private:
  static constexpr int kElements = SplitBlock::kElements;

  static __device__ __forceinline__ int number(int r, int c) { return r / 2 * 3 + r % 2 + c % 2; }
  /// Elements from the begin of a block to the unit of 16 bytes of this lane.
  static __device__ __forceinline__ int row_of_lane() {
    const int lane = tile::fresh_lane(), row = lane % kBlock;
    return row * kBlock + (lane / kBlock ^ row / 4 % 2) * 8;
  }
};

/// From a block N strictly below the diagonal X = (I - N)^-1, by one warp: lane c < 16 computes its column c, x_i =
/// delta_ic + sum_{j<i} N_ij x_j.
/// @param X N on entry; what it has on and above the diagonal is not read
/// @param memory [16, 16], aligned to 16 bytes; the warp's own until __syncwarp()
__device__ __forceinline__ void substitute(BlockSums& X, float* memory) {
  const int lane = int(lane_index()), corner = lane / 4 * kBlock + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    *reinterpret_cast<float2*>(memory + corner + i % 2 * 8 * kBlock + i / 2 * 8) =
        make_float2(X[i / 2][i % 2 * 2], X[i / 2][i % 2 * 2 + 1]);
  }
  __syncwarp();
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float sums[2] = {i == lane % kBlock ? 1.0f : 0.0f,
                     0.0f};  // the first has the product with x_{i-1}, the last to come
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 N = *reinterpret_cast<const float4*>(memory + i * kBlock + j);
      const float of[4] = {N.x, N.y, N.z, N.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (j + n < i) sums[j + n < i - 1] += of[n] * x[j + n];
      }
    }
    x[i] = sums[0] + sums[1];
  }
  __syncwarp();
  if (lane < kBlock) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) memory[i * kBlock + lane] = x[i];
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two = *reinterpret_cast<const float2*>(memory + corner + i % 2 * 8 * kBlock + i / 2 * 8);
    X[i / 2][i % 2 * 2] = two.x;
    X[i / 2][i % 2 * 2 + 1] = two.y;
  }
  __syncwarp();
}

/// X = (I - N)^-1 by a warpgroup. No warp reads `memory` any more: the caller has a barrier before.
/// @param N the warp's row of blocks, as a warpgroup product leaves it; used and changed below the diagonal
/// @param warp the number of the warp in its warpgroup, known to the compiler to be that of all lanes
/// @param barrier a named barrier for the warpgroup
/// @param meanwhile called once by each warp, when N takes no registers any more
/// @param put put(r, c, block): called for each block of X that the warp has computed
template <class Meanwhile, class Put>
__device__ __forceinline__ void invert(tile::WarpgroupScores& N, const TreeMemory& memory, int warp, unsigned barrier,
                                       Meanwhile meanwhile, Put put) {
  const auto block = [&](int c) -> BlockSums& { return reinterpret_cast<BlockSums&>(N[c * 8]); };
  const bool has_pair = warp % 2 == 1;
  BlockSums diagonal, pair = {}, half = {};
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c == warp) {
#pragma unroll
      for (int i = 0; i < 8; ++i) diagonal[i / 4][i % 4] = block(c)[i / 4][i % 4];
    }
  }
  // N goes to memory first, so that it takes no registers any more. N_10 and N_32 lie where X_10 and X_32 will.
  if (warp >= 2) {
#pragma unroll
    for (int c = 0; c < 2; ++c) memory.N(warp, c).store(as_fragment(block(c)));
  }
  if (warp == 1) memory.X(1, 0).store(as_fragment(block(0)));
  if (warp == 3) memory.X(3, 2).store(as_fragment(block(2)));
  substitute(diagonal, memory.diagonal(warp));
  meanwhile();
  SplitFragment<4> left = as_fragment(diagonal);
  memory.X(warp, warp).store(left);
  if (has_pair) {
    add_product(pair, left, memory.X(warp, warp - 1));
    left = as_fragment(pair);
  }
  wait_at_named_barrier(barrier, tile::kWarpgroup);
  if (has_pair) {
#pragma unroll
    for (int i = 0; i < 8; ++i) pair[i / 4][i % 4] = 0;
    add_product(pair, left, memory.X(warp - 1, warp - 1));
    memory.X(warp, warp - 1).store(as_fragment(pair));
  }
  wait_at_named_barrier(barrier, tile::kWarpgroup);
  put(warp, warp, diagonal);
  if (has_pair) put(warp, warp - 1, pair);
  const int row = warp == 0 || warp == 3 ? 3 : 2, column = warp % 2;
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    if (m < column) continue;
    BlockSums sums = {};
#pragma unroll
    for (int k = 2; k < 4; ++k) {
      if (k <= row) add_product(sums, memory.X(row, k).left(), memory.N(k, m));
    }
    add_product(half, as_fragment(sums), memory.X(m, column));
  }
  put(row, column, half);
}

}  // namespace tutorial::delta_rule
