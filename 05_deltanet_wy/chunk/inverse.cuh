#pragma once
/// @file
/// X = (I + A)^-1 of a chunk, with A [64, 64] strictly lower triangular. Four warps compute it: the UT transform on
/// tensor cores.
///
/// The 16 x 16 blocks on the diagonal are inverted by forward substitution in fp32, one per warp. The blocks to their
/// left follow from X (I + A) = I: block (r, c) of this product is 0 for c < r, and contains only X_rc and blocks to
/// its right.
///
///     X_rc = -(X_r,c+1 A_c+1,c + ... + X_rr A_rc) X_cc,   c < r           (for two blocks: X_10 = -X_11 A_10 X_00)
///
///     X_00                        warp 0
///     X_10 X_11                   warp 1      A row of blocks needs only the diagonal's inverses of the other rows.
///     X_20 X_21 X_22              warp 2      So each warp computes one row, and the warps wait for each other once,
///     X_30 X_31 X_32 X_33         warp 3      when those inverses are there.
///
/// These products run on tensor cores, with both factors split into two bf16 (split.cuh). One bf16 per factor would not
/// be accurate enough: X is a sum of products of many blocks of A, and the rounding error of one block enters all
/// blocks that follow.
/// Sources: Yang et al., arXiv 2406.06484, section 3.2; flash-linear-attention, `solve_tril`, for blocks of 16.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/blocks.hpp"
#include "05_deltanet_wy/chunk/split.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/warp.cuh"

namespace tutorial::delta_rule {

/// A 16 x 16 block in the registers of a warp: two accumulators of mma side by side.
using BlockSums = float[2][4];
/// A row of blocks; only those up to the diagonal are used.
using BlockRow = BlockSums[kBlocks];

/// A chunk's matrices in shared memory, fp32. Rows are padded so that the lanes of a B fragment read 32 banks.
struct InverseMemory {
  static constexpr int kStride = kBlocks * kBlock + 4, kBlockStride = kBlock + 4;
  static constexpr int kBytes = 4 * (kBlocks * kBlock * kStride + kBlocks * kBlock * kBlockStride);

  float* data;

  /// A [64, 64], of which only the blocks on and below the diagonal are used.
  __device__ __forceinline__ float* A(int row, int column) const { return data + row * kStride + column; }
  /// The inverse of the diagonal's block r, [16, 16].
  __device__ __forceinline__ float* inverse(int r, int row, int column) const {
    return data + kBlocks * kBlock * kStride + (r * kBlock + row) * kBlockStride + column;
  }
};

/// The inverse of I + (the diagonal's block r of A). One warp computes it: lane c < 16 has its column c, x_i = delta_ic
/// - sum_{j<i} A_ij x_j.
__device__ __forceinline__ void invert_diagonal_block(const InverseMemory& memory, int r) {
  const int column = int(lane_index());
  if (column >= kBlock) return;
  float x[kBlock];
#pragma unroll
  for (int i = 0; i < kBlock; ++i) {
    float sums[2] = {i == column ? 1.0f : 0.0f, 0.0f};  // the first has the product with x_{i-1}, which is known last
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      const float4 A = *reinterpret_cast<const float4*>(memory.A(r * kBlock + i, r * kBlock + j));
      const float of[4] = {A.x, A.y, A.z, A.w};
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        if (j + n < i) sums[j + n < i - 1] -= of[n] * x[j + n];
      }
    }
    x[i] = sums[0] + sums[1];
    *memory.inverse(r, i, column) = x[i];
  }
}

/// B fragments of a 16 x 16 block in shared memory, for columns 0 to 7 and 8 to 15; rows are `stride` floats apart.
__device__ __forceinline__ void load_block(SplitFragment<2> (&b)[2], const float* block, int stride) {
  const int lane = hide_from_compiler(int(lane_index()));
  block += lane % 4 * 2 * stride + lane / 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) b[n].set(i, block[8 * i * stride + 8 * n], block[(8 * i + 1) * stride + 8 * n]);
  }
}

/// A block of sums as an A fragment.
__device__ __forceinline__ SplitFragment<4> as_fragment(const BlockSums& x) {
  SplitFragment<4> a;
#pragma unroll
  for (int i = 0; i < 4; ++i) a.set(i, x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1]);
  return a;
}

/// One warp computes row r of the blocks of X. All inverses on the diagonal are in memory: the caller waits at a
/// barrier before.
__device__ __forceinline__ void inverse_row(BlockRow& X, const InverseMemory& memory, int r) {
  const int lane = hide_from_compiler(int(lane_index()));
  SplitFragment<4> done[kBlocks];
#pragma unroll
  for (int c = kBlocks - 1; c >= 0; --c) {
    if (c > r) continue;
    if (c == r) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        X[c][i / 4][i % 4] = *memory.inverse(r, lane / 4 + i % 4 / 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
      }
    } else {
      SplitFragment<2> b[2];
      BlockSums sums = {};
#pragma unroll
      for (int m = c + 1; m < kBlocks; ++m) {
        if (m > r) continue;
        load_block(b, memory.A(m * kBlock, c * kBlock), InverseMemory::kStride);
        mma_split(sums[0], done[m], b[0]);
        mma_split(sums[1], done[m], b[1]);
      }
#pragma unroll
      for (auto& half : sums) {
#pragma unroll
        for (float& x : half) x = -x;
      }
      const SplitFragment<4> left = as_fragment(sums);
      load_block(b, memory.inverse(c, 0, 0), InverseMemory::kBlockStride);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (float& x : X[c][n]) x = 0;
        mma_split(X[c][n], left, b[n]);
      }
    }
    done[c] = as_fragment(X[c]);
  }
}

}  // namespace tutorial::delta_rule
