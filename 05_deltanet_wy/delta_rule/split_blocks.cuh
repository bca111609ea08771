#pragma once
/// @file
/// X = (I + A)^-1 of a chunk as in chunk_inverse.cuh, for a warpgroup that shares a multiprocessor with others: fewer
/// instructions.
///
/// There each warp loads the blocks of A that it needs in fp32 and splits them into two bf16, the same block in up to
/// three warps. Here a block is split once, by the warp that has it in its accumulators, and lies in shared memory as
/// fragments of 8 x 8 matrices. Then a right factor is two ldmatrix, without bank conflicts.
///
///     lane 0 .. 7   8 .. 15   16 .. 23   24 .. 31        the row that a lane's address names, 16 bytes each
///     +-----------+---------+----------+----------+
///     | rows 0-7  | 8-15    | 0-7      | 8-15     |  high, 512 bytes; then low
///     | cols 0-7  | 0-7     | 8-15     | 8-15     |
///     +-----------+---------+----------+----------+
///
/// In place of the diagonal's blocks of A lie their inverses. The blocks below the diagonal are those of -A, so that
///
///     X_rc = (X_r,c+1 (-A)_c+1,c + ... + X_rr (-A)_rc) X_cc,   c < r

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule/blocks.hpp"
#include "05_deltanet_wy/delta_rule/chunk_inverse.cuh"
#include "05_deltanet_wy/delta_rule/split.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/warp.cuh"

namespace tutorial::delta_rule {

/// The blocks on and below the diagonal in shared memory, each in two bf16.
struct SplitBlocks {
  static constexpr int kHalf = kBlock * kBlock;  // elements of the high or of the low part
  static constexpr int kBytes = kLowerBlocks * 2 * kHalf * int(sizeof(__nv_bfloat16));

  __nv_bfloat16* data;  ///< aligned to 16 bytes

  /// Where the lane's row of block (r, c) is.
  __device__ __forceinline__ __nv_bfloat16* row(int r, int c) const {
    return data + lower_block(r, c) * 2 * kHalf + int(lane_index()) * 8;
  }
  /// The same memory, 16 x 16 numbers in fp32.
  __device__ __forceinline__ float* in_fp32(int r, int c) const {
    return reinterpret_cast<float*>(data + lower_block(r, c) * 2 * kHalf);
  }
  /// Stores a block.
  __device__ __forceinline__ void put(int r, int c, const SplitFragment<4>& block) const {
    stmatrix(row(r, c), block.high);
    stmatrix(row(r, c) + kHalf, block.low);
  }
  /// A block as a left factor.
  __device__ __forceinline__ SplitFragment<4> left(int r, int c) const {
    SplitFragment<4> block;
    ldmatrix_x4(block.high, row(r, c));
    ldmatrix_x4(block.low, row(r, c) + kHalf);
    return block;
  }
  /// sums += left times block (r, c).
  __device__ __forceinline__ void add_product(BlockSums& sums, const SplitFragment<4>& left, int r, int c) const {
    std::uint32_t high[4], low[4];
    ldmatrix_x4_trans(high, row(r, c));
    ldmatrix_x4_trans(low, row(r, c) + kHalf);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      mma_split(sums[n], left, {{high[2 * n], high[2 * n + 1]}, {low[2 * n], low[2 * n + 1]}});
    }
  }
};

/// Calls f(row, column, element) for each of the lane's elements of a block.
template <class F>
__device__ __forceinline__ void for_each_of_block(BlockSums& block, F f) {
  const int lane = hide_from_compiler(int(lane_index()));
#pragma unroll
  for (int i = 0; i < 8; ++i) f(lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2, block[i / 4][i % 4]);
}

/// block = (I + A)^-1 from a block of -A, of which only what is below the diagonal is used. One warp computes it: lane
/// c < 16 has column c.
/// @param memory 16 x 16 numbers in shared memory that only this warp uses
__device__ __forceinline__ void invert_block(BlockSums& block, float* memory, float factor) {
  for_each_of_block(block, [&](int row, int column, float& x) { memory[row * kBlock + column] = x; });
  __syncwarp();
  const int column = int(lane_index()) % kBlock;  // lanes 16 to 31 compute the same again
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float sums[2] = {i == column ? factor : 0.0f, 0.0f};  // the first has the product with x_{i-1}, which is known last
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 A = *reinterpret_cast<const float4*>(memory + i * kBlock + j);
      const float of[4] = {A.x, A.y, A.z, A.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (j + n < i) sums[j + n < i - 1] += of[n] * x[j + n];
      }
    }
    x[i] = sums[0] + sums[1];
  }
  __syncwarp();  // all lanes have read A
  if (lane_index() < kBlock) {
#pragma unroll
    for (int i = 0; i < kBlock; ++i) memory[i * kBlock + column] = x[i];
  }
  __syncwarp();
  for_each_of_block(block, [&](int row, int column, float& x) { x = memory[row * kBlock + column]; });
  __syncwarp();  // all lanes have read their part: the memory may be used again
}

/// A row of blocks of X, each in two bf16; only those up to the diagonal are used.
using SplitRow = SplitFragment<4>[kBlocks];

/// Row r of the blocks of -T. One warp computes it. The caller waits at a barrier before: all blocks that other warps
/// have put are there.
__device__ __forceinline__ void inverse_row(SplitRow& T, const SplitBlocks& blocks, int r) {
#pragma unroll
  for (int c = kBlocks - 1; c >= 0; --c) {
    if (c > r) continue;
    if (c == r) {
      T[c] = blocks.left(c, c);
      continue;
    }
    BlockSums sums = {};
#pragma unroll
    for (int m = kBlocks - 1; m > c; --m) {  // the block that is known last comes last
      if (m <= r) blocks.add_product(sums, T[m], m, c);
    }
    T[c] = as_fragment(sums);
  }
}

}  // namespace tutorial::delta_rule
