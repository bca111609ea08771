#pragma once
/// @file
/// T of a chunk in blocks of 16 x 16 as in inverse.cuh, for a warpgroup that shares a multiprocessor with others:
/// fewer instructions, and fewer that wait for each other.
///
/// With N = K K^T below the diagonal, A = diag(beta) N, and the walk needs U = -T = -(I + A)^-1 diag(beta). Beta is
/// multiplied into the blocks on the diagonal. Then the others follow from (I + A)^-1 (I + A) = I without it:
///
///     U_cc = -(I + A_cc)^-1 diag(beta_c)                           warp c
///     W_mc = N_mc U_cc,                             c < m          warp m
///     U_rc = U_r,c+1 W_c+1,c + ... + U_rr W_rc,     c < r          one warp for each row r
///
/// In inverse.cuh a block of a row takes two products, one after the other. Here the products with U_cc come
/// first: they do not depend on each other, and the left factor of each is in the accumulators of its warp.
///
/// There each warp also loads the blocks of A that it needs in fp32 and splits them into two bf16, the same block in up
/// to three warps. Here a block is split once, by the warp that has computed it. U_cc and W_mc lie in shared memory as
/// fragments of 8 x 8 matrices, so that a right factor is two ldmatrix, without bank conflicts.
///
///     lane 0 .. 7   8 .. 15   16 .. 23   24 .. 31        the row that a lane's address names, 16 bytes each
///     +-----------+---------+----------+----------+
///     | rows 0-7  | 8-15    | 0-7      | 8-15     |  high, 512 bytes; then low
///     | cols 0-7  | 0-7     | 8-15     | 8-15     |
///     +-----------+---------+----------+----------+
///
/// W_mc lies like this. A lane has a column of U_cc in its registers, so U_cc is stored transposed, with the second and
/// the third of its matrices exchanged. Then both are right factors without moves between registers.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/blocks.hpp"
#include "05_deltanet_wy/chunk/inverse.cuh"
#include "05_deltanet_wy/chunk/split.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/named_barrier.cuh"
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
  /// Stores W_mc.
  __device__ __forceinline__ void put(int m, int c, const SplitFragment<4>& block) const {
    stmatrix(row(m, c), block.high);
    stmatrix(row(m, c) + kHalf, block.low);
  }
  /// U_cc as a left factor.
  __device__ __forceinline__ SplitFragment<4> diagonal(int c) const {
    SplitFragment<4> block;
    ldmatrix_x4_trans(block.high, row(c, c));
    ldmatrix_x4_trans(block.low, row(c, c) + kHalf);
    return block;
  }
  /// sums += left U_cc.
  __device__ __forceinline__ void add_diagonal_product(BlockSums& sums, const SplitFragment<4>& left, int c) const {
    std::uint32_t high[4], low[4];
    ldmatrix_x4(high, row(c, c));
    ldmatrix_x4(low, row(c, c) + kHalf);
    add(sums, left, high, low);
  }
  /// sums += left W_mc.
  __device__ __forceinline__ void add_product(BlockSums& sums, const SplitFragment<4>& left, int m, int c) const {
    std::uint32_t high[4], low[4];
    ldmatrix_x4_trans(high, row(m, c));
    ldmatrix_x4_trans(low, row(m, c) + kHalf);
    add(sums, left, high, low);
  }

 private:
  static __device__ __forceinline__ void add(BlockSums& sums, const SplitFragment<4>& left,
                                             const std::uint32_t (&high)[4], const std::uint32_t (&low)[4]) {
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

/// x = a column of (I + A)^-1 times a factor, by forward substitution.
/// @param A -A in fp32 in shared memory, of which only what is below the diagonal is used
__device__ __forceinline__ void solve_column(float (&x)[kBlock], const float* A, int column, float factor) {
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float sums[2] = {i == column ? factor : 0.0f, 0.0f};  // the first has the product with x_{i-1}, which is known last
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 four = *reinterpret_cast<const float4*>(A + i * kBlock + j);
      const float of[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (j + n < i) sums[j + n < i - 1] += of[n] * x[j + n];
      }
    }
    x[i] = sums[0] + sums[1];
  }
}

/// Stores U_cc = (I + A_cc)^-1 times a factor for each column. One warp computes it: lanes i and 16 + i have column i,
/// and each of the two stores half of it.
/// @param block -A_cc, of which only what is below the diagonal is used
/// @param factor of column i in lanes i and 16 + i
__device__ __forceinline__ void put_inverse(const SplitBlocks& blocks, int c, BlockSums& block, float factor) {
  float* memory = blocks.in_fp32(c, c);
  for_each_of_block(block, [&](int row, int column, float& x) { memory[row * kBlock + column] = x; });
  __syncwarp();
  const int column = int(lane_index()) % kBlock;
  float x[kBlock];
  solve_column(x, memory, column, factor);
  __syncwarp();  // all lanes have read A
  const bool is_lower = lane_index() >= kBlock;
  SplitFragment<4> half;
#pragma unroll
  for (int i = 0; i < 4; ++i) half.set(i, is_lower ? x[8 + 2 * i] : x[2 * i], is_lower ? x[9 + 2 * i] : x[2 * i + 1]);
  const int place = column % 8 + column / 8 * 16 + (is_lower ? 8 : 0);  // of the lane's row, among those of 32 lanes
  auto* to = reinterpret_cast<uint4*>(memory) + place;
  to[0] = make_uint4(half.high[0], half.high[1], half.high[2], half.high[3]);
  to[SplitBlocks::kHalf / 8] = make_uint4(half.low[0], half.low[1], half.low[2], half.low[3]);
}

/// A row of blocks of U = -T, each in two bf16; only those up to the diagonal are used.
using SplitRow = SplitFragment<4>[kBlocks];

/// Warp m stores row m of the blocks of W. The caller waits at a barrier before: all U_cc are there.
/// @param N row m of the blocks of K K^T
template <int m>
__device__ __forceinline__ void put_products(const SplitBlocks& blocks, const BlockRow& N) {
  BlockSums W[m] = {};
#pragma unroll
  for (int c = 0; c < m; ++c) blocks.add_diagonal_product(W[c], as_fragment(N[c]), c);
#pragma unroll
  for (int c = 0; c < m; ++c) blocks.put(m, c, as_fragment(W[c]));
}

/// Row r of the blocks of U. One warp computes it. The caller waits at a barrier before: all blocks that other warps
/// have put are there. As soon as a block is known, it is added to all sums to its left, so that these products do not
/// wait for each other.
template <int r>
__device__ __forceinline__ void multiply_row(SplitRow& U, const SplitBlocks& blocks) {
  BlockSums sums[r + 1] = {};
  U[r] = blocks.diagonal(r);
#pragma unroll
  for (int m = r; m > 0; --m) {
#pragma unroll
    for (int c = m - 1; c >= 0; --c) blocks.add_product(sums[c], U[m], m, c);
    U[m - 1] = as_fragment(sums[m - 1]);
  }
}

/// Row 3 - warp of the blocks of U, by a warpgroup, with less code: each product of blocks stands here once, for
/// all warps. All warps have passed a barrier since they have used the memory of the chunk before.
/// @param barrier a named barrier of the warpgroup's
/// @param diagonal -A_cc of the warp's row of blocks, which is overwritten
/// @param N the warp's row of K K^T
/// @param beta of the warp's positions, in lanes 0 to 15
__device__ __forceinline__ void invert_compactly(SplitRow& U, const SplitBlocks& blocks, unsigned barrier, int warp,
                                                 BlockSums& diagonal, const BlockRow& N, float beta) {
  const int row = kBlocks - 1 - warp;
  put_inverse(blocks, warp, diagonal, -__shfl_sync(kAllLanes, beta, int(lane_index()) % kBlock));
  wait_at_named_barrier(barrier, 4 * 32);
  BlockSums W[kBlocks - 1] = {};
#pragma unroll
  for (int c = 0; c < kBlocks - 1; ++c) {
    if (c < warp) blocks.add_diagonal_product(W[c], as_fragment(N[c]), c);
  }
#pragma unroll
  for (int c = 0; c < kBlocks - 1; ++c) {
    if (c < warp) blocks.put(warp, c, as_fragment(W[c]));
  }
  wait_at_named_barrier(barrier, 4 * 32);
  BlockSums sums[kBlocks - 1] = {};
  SplitFragment<4> last = blocks.diagonal(row);
#pragma unroll
  for (int m = kBlocks - 1; m > 0; --m) {
    U[m] = last;
    if (m > row) continue;
#pragma unroll
    for (int c = m - 1; c >= 0; --c) blocks.add_product(sums[c], last, m, c);
    last = as_fragment(sums[m - 1]);
  }
  U[0] = last;
}

}  // namespace tutorial::delta_rule
