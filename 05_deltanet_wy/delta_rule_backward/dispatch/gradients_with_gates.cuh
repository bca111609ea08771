#pragma once
/// @file
/// What `tensor_core` of the two operators with gates shares. In the walk from the end: products with T and P whose
/// blocks need not be transposed. In the last kernel: the part of a chunk that a block computes, and the scores of a row
/// of blocks, of which a warp looks at the diagonal block before it is rounded.
///
/// All lanes of a warp call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/block_rows.cuh"
#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/key_products.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/load_tile.cuh"

namespace tutorial::delta_rule {

/// As add_transposed_scores() of gradient_walk.cuh, with P as for_gradients.hpp has it.
__device__ __forceinline__ void add_flipped_scores(WarpColumns& X, const WarpFragments& O, const uint4* P) {
  const int lane = fresh_lane();
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int t = i; t < kBlocks; ++t) {
      multiply(X, i, O[t], P[lower_block(t, i) * 32 + lane]);
    }
  }
}

/// As multiply_transposed(), likewise.
__device__ __forceinline__ void multiply_flipped(WarpColumns& dV, const WarpColumns& X, const uint4* T) {
  const int lane = fresh_lane();
#pragma unroll
  for (int t = 0; t < kBlocks; ++t) {
    const uint4 x = rounded(X[2 * t], X[2 * t + 1]);
#pragma unroll
    for (int i = 0; i <= t; ++i) {
      multiply(dV, i, x, T[lower_block(t, i) * 32 + lane]);
      multiply(dV, i, x, T[kBlockUnits + lower_block(t, i) * 32 + lane]);
    }
  }
}

/// The part of a chunk's gradients that a block computes: `columns` of Dk for all of Dv, 16 columns for each warp.
/// @tparam kDk_ columns that hold all of Dv, the keys of these products
template <int kDk_, int kColumns>
struct GradientShape {
  static constexpr int kDk = kDk_;
  static constexpr int kDv = kColumns;
  static constexpr int kWarpColumns = 16;
  static constexpr int kWarps = kDv / kWarpColumns;
  static constexpr int kThreads = 32 * kWarps;
  using KeyTile = SwizzledTile<kDk>;                   ///< dO, dV or v_new
  using ValueTile = SwizzledTile<kDv>;                 ///< the block's columns of Q or K
  using ScoreTile = SwizzledTile<kChunk>;              ///< Y or Z
  using Output = float[kBlocks][kWarpColumns / 8][4];  ///< accumulators of a warp's columns of dQ or dK

  /// As load_tile_async(), by all threads of the block.
  template <int kWidth>
  static __device__ __forceinline__ void load(const SwizzledTile<kWidth>& tile, const __nv_bfloat16* first_row,
                                              std::int64_t stride_l, int rows, int columns) {
    tile::load_columns_async<kThreads, kWidth>(hide_from_compiler(int(threadIdx.x)), tile, first_row, stride_l, rows,
                                               columns);
  }
};

/// The blocks (r, 0) to (r, r) of scores, rounded, to shared memory.
/// @param sums the products, which become the scores
/// @param score score(t, i, product) is the element; above the diagonal it is not used
/// @param diagonal diagonal(row, column, block) is called with the lane's scores of block (r, r) before they are
/// rounded, the element of `block[half][2 part + e]` being that of row `row` + 8 part and column `column` + 8 half + e
template <class Score, class Diagonal>
__device__ __forceinline__ void put_scores_of_row(const SwizzledTile<kChunk>& to, BlockRow& sums, int r, Score score,
                                                  Diagonal diagonal) {
  for_each_element(sums, r, [&](int t, int i, float& x) { x = i <= t ? score(t, i, x) : 0.0f; });
  const int lane = fresh_lane(), first = to.unit(r * kBlock + lane / 4, 0);
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c == r) diagonal(lane / 4, lane % 4 * 2, sums[c]);
    if (c > r) continue;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float* two = &sums[c][part / 2][part % 2 * 2];
      const int unit = to.advance(first, part % 2 * 8, c * kBlock + part / 2 * 8);
      *reinterpret_cast<std::uint32_t*>(to.data + unit + lane % 4 * 2) = pack(two[0], two[1]);
    }
  }
}

/// The same of X V^T. One warp computes them.
template <int kDk, class Score, class Diagonal>
__device__ __forceinline__ void scores_of_row(const SwizzledTile<kChunk>& to, const SwizzledTile<kDk>& X,
                                              const SwizzledTile<kDk>& V, int r, Score score, Diagonal diagonal) {
  BlockRow sums = {};
  products_with_keys(sums, X, V, r);
  put_scores_of_row(to, sums, r, score, diagonal);
}

}  // namespace tutorial::delta_rule
