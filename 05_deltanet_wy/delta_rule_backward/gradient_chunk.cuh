#pragma once
/// @file
/// The products of a chunk's gradients on fragments, for the stages of `--backward` with and without gates.
///
/// In a walk from the end everything is transposed, as in warp_products.cuh: a warp has 16 columns of dO, dV and dS.
///
///     X^T   = dS^T K^T + dO^T P          A = dS^T, dO^T;  B = K^T, P         add_from_state(), add_transposed_scores()
///     dV^T  = X^T T                      A = X^T;         B = T              multiply_transposed()
///     dS^T += dO^T Q - dV^T K            A = dO^T, dV^T;  B = Q, K           update_state()
///
/// If P and T lie in memory as the B fragments of their transposes, their blocks are transposed in registers.
///
/// The last kernel of a stage multiplies rows of positions by states that lie in device memory as A fragments of their
/// transposes: add_from_fragments().
///
/// All lanes of a warp call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/block_rows.cuh"
#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/key_products.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/movmatrix.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/load_tile.cuh"

namespace tutorial::delta_rule {

inline constexpr float kLeastBeta = 0x1p-32f;  ///< that is computed with; its square is far from underflow

/// The B fragments of a block, from those of its transpose (prepare.hpp).
__device__ __forceinline__ uint4 flipped(const uint4& block) {
  return make_uint4(transpose_8x8(block.x), transpose_8x8(block.z), transpose_8x8(block.y), transpose_8x8(block.w));
}

/// The same fragment with the opposite sign.
__device__ __forceinline__ uint4 opposite(const uint4& x) {
  return make_uint4(negated(x.x), negated(x.y), negated(x.z), negated(x.w));
}

/// Two accumulators side by side, times a factor, as an A fragment.
__device__ __forceinline__ uint4 scaled_fragment(const float (&left)[4], const float (&right)[4], float factor) {
  const auto two = [&](const float* x) { return pack(factor * x[0], factor * x[1]); };
  return make_uint4(two(left), two(left + 2), two(right), two(right + 2));
}

/// The accumulators of columns 16 i to 16 i + 15 from an A fragment.
__device__ __forceinline__ void unpack_fragment(WarpColumns& to, int i, const uint4& fragment) {
  const std::uint32_t of[] = {fragment.x, fragment.y, fragment.z, fragment.w};
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const float2 two = unpack(of[r]);
    to[2 * i + r / 2][r % 2 * 2] = two.x;
    to[2 * i + r / 2][r % 2 * 2 + 1] = two.y;
  }
}

/// A fragments of V^T, the warp's columns. @param first_column the warp's, of V
__device__ __forceinline__ void load_transposed_values(WarpFragments& values, const SwizzledTile<64>& V,
                                                       int first_column) {
  const int lane = fresh_lane(), unit = V.unit(lane / 16 * 8 + lane % 8, first_column + lane / 8 % 2 * 8);
#pragma unroll
  for (int t = 0; t < kBlocks; ++t) {
    std::uint32_t v[4];
    ldmatrix_x4_trans(v, V.data + V.advance(unit, t * kBlock, 0));
    values[t] = make_uint4(v[0], v[1], v[2], v[3]);
  }
}

/// A block of T or P as a walk from the end multiplies by it. @tparam kIsFlipped whether it lies in memory like that
template <bool kIsFlipped>
__device__ __forceinline__ uint4 flipped_block(const uint4& block) {
  return kIsFlipped ? block : flipped(block);
}

/// X += P^T O, transposed. @param P [10, 32] in shared memory
template <bool kIsFlipped = false>
__device__ __forceinline__ void add_transposed_scores(WarpColumns& X, const WarpFragments& O, const uint4* P) {
  const int lane = fresh_lane();
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int t = i; t < kBlocks; ++t) {
      multiply(X, i, O[t], flipped_block<kIsFlipped>(P[lower_block(t, i) * 32 + lane]));
    }
  }
}

/// dV += T^T X, transposed. @param T [2, 10, 32] in shared memory
template <bool kIsFlipped = false>
__device__ __forceinline__ void multiply_transposed(WarpColumns& dV, const WarpColumns& X, const uint4* T) {
  const int lane = fresh_lane();
#pragma unroll
  for (int t = 0; t < kBlocks; ++t) {
    const uint4 x = rounded(X[2 * t], X[2 * t + 1]);
#pragma unroll
    for (int i = 0; i <= t; ++i) {
      multiply(dV, i, x, flipped_block<kIsFlipped>(T[lower_block(t, i) * 32 + lane]));
      multiply(dV, i, x, flipped_block<kIsFlipped>(T[kBlockUnits + lower_block(t, i) * 32 + lane]));
    }
  }
}

/// O += columns 16 j to 16 j + 15 of X [64, ...] times those of S, the warp's columns.
/// @param unit X.unit(lane % 16, lane / 16 * 8)
/// @param s a fragment of S^T for each 16 of the warp's columns
template <class Shape>
__device__ __forceinline__ void add_from_fragments(typename Shape::Output& O, const typename Shape::KeyTile& X,
                                                   int unit, int j, const uint4 (&s)[Shape::kWarpColumns / 16]) {
  constexpr int kCount = Shape::kWarpColumns / 16;
  uint4 columns[kCount];
#pragma unroll
  for (int c = 0; c < kCount; ++c) {
    columns[c] = make_uint4(transpose_8x8(s[c].x), transpose_8x8(s[c].y), transpose_8x8(s[c].z), transpose_8x8(s[c].w));
  }
#pragma unroll
  for (int t = 0; t < kBlocks; ++t) {
    std::uint32_t rows[4];
    ldmatrix_x4(rows, X.data + X.advance(unit, t * kBlock, j * 16));
#pragma unroll
    for (int c = 0; c < kCount; ++c) multiply(O[t], c, make_uint4(rows[0], rows[1], rows[2], rows[3]), columns[c]);
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

/// The blocks (r, 0) to (r, r) of X V^T, rounded, to shared memory. One warp computes them.
/// @param score score(t, i, product) is the element; above the diagonal it is not used
/// @param diagonal diagonal(row, column, block) is called with the lane's scores of block (r, r) before they are
/// rounded, the element of `block[half][2 part + e]` being that of row `row` + 8 part and column `column` + 8 half + e
template <int kDk, class Score, class Diagonal>
__device__ __forceinline__ void scores_of_row(const SwizzledTile<kChunk>& to, const SwizzledTile<kDk>& X,
                                              const SwizzledTile<kDk>& V, int r, Score score, Diagonal diagonal) {
  BlockRow sums = {};
  products_with_keys(sums, X, V, r);
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

/// Each row of O times its factor. @param factor factor(t), of row t
template <class Shape, class Factor>
__device__ __forceinline__ void scale_rows(typename Shape::Output& O, Factor factor) {
  const int lane = fresh_lane();
#pragma unroll
  for (int t = 0; t < kChunk / 8; ++t) {
    const float times = factor(t * 8 + lane / 4);
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      O[t / 2][j][t % 2 * 2] *= times;
      O[t / 2][j][t % 2 * 2 + 1] *= times;
    }
  }
}

}  // namespace tutorial::delta_rule
