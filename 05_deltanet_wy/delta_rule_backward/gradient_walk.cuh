#pragma once
/// @file
/// The products of a walk from the end on fragments, for `--backward` with and without gates. As in warp_products.cuh,
/// everything is transposed: a warp has 16 columns of dO, dV and dS.
///
///     X^T   = dS^T K^T + dO^T P          A = dS^T, dO^T;  B = K^T, P         add_from_state(), add_transposed_scores()
///     dV^T  = X^T T                      A = X^T;         B = T              multiply_transposed()
///     dS^T += dO^T Q - dV^T K            A = dO^T, dV^T;  B = Q, K           update_state()
///
/// In a marked chunk (alike_keys.cuh), P and X are two bf16, and so is v_new in the walk from the beginning:
/// add_errors_of_scores(), and what is left in place of rounded numbers by errors_of().
///
/// If P and T lie in memory as the B fragments of their transposes, their blocks are transposed in registers.
///
/// All lanes of a warp call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/movmatrix.cuh"
#include "common/device/pack.cuh"

namespace tutorial::delta_rule {

/// The B fragments of a block, from those of its transpose (prepare.hpp).
__device__ __forceinline__ uint4 flipped(const uint4& block) {
  return make_uint4(transpose_8x8(block.x), transpose_8x8(block.z), transpose_8x8(block.y), transpose_8x8(block.w));
}

/// The same fragment with the opposite sign.
__device__ __forceinline__ uint4 opposite(const uint4& x) {
  return make_uint4(negated(x.x), negated(x.y), negated(x.z), negated(x.w));
}

/// What rounding leaves out of two accumulators side by side, in their place. @return it, rounded, as an A fragment
__device__ __forceinline__ uint4 errors_of(float (&left)[4], float (&right)[4]) {
  keep_errors(left);
  keep_errors(right);
  return rounded(left, right);
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

/// X += P^T O, transposed. @param P [10, 32] in shared memory
__device__ __forceinline__ void add_transposed_scores(WarpColumns& X, const WarpFragments& O, const uint4* P) {
  const int lane = fresh_lane();
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int t = i; t < kBlocks; ++t) {
      multiply(X, i, O[t], flipped(P[lower_block(t, i) * 32 + lane]));
    }
  }
}

/// dV += T^T X, transposed. @param T [2, 10, 32] in shared memory
__device__ __forceinline__ void multiply_transposed(WarpColumns& dV, const WarpColumns& X, const uint4* T) {
  const int lane = fresh_lane();
#pragma unroll
  for (int t = 0; t < kBlocks; ++t) {
    const uint4 x = rounded(X[2 * t], X[2 * t + 1]);
#pragma unroll
    for (int i = 0; i <= t; ++i) {
      multiply(dV, i, x, flipped(T[lower_block(t, i) * 32 + lane]));
      multiply(dV, i, x, flipped(T[kBlockUnits + lower_block(t, i) * 32 + lane]));
    }
  }
}

/// dV += T^T (what rounding leaves out of X), transposed. The errors take the place of X.
/// @param T T(block): the B fragments of a block of the rounded T
template <class Block>
__device__ __forceinline__ void multiply_errors_by_blocks(WarpColumns& dV, WarpColumns& X, Block T) {
#pragma unroll
  for (int t = 0; t < kBlocks; ++t) {
    const uint4 x = errors_of(X[2 * t], X[2 * t + 1]);
#pragma unroll
    for (int i = 0; i <= t; ++i) multiply(dV, i, x, T(lower_block(t, i)));
  }
}

/// X += (what rounding leaves out of P)^T O, transposed. P is computed once more, block after block: the sums of K Q^T are
/// B fragments of P as they are.
/// @param P P(block): the B fragments of a block of the rounded P
/// @param decay decay(t, i): what of key i is left at query t
template <int kDk, class Block, class Decay>
__device__ __forceinline__ void add_errors_of_score_blocks(WarpColumns& X, const WarpFragments& O, Block P,
                                                           const SwizzledTile<kDk>& Q, const SwizzledTile<kDk>& K,
                                                           Decay decay) {
  const int lane = fresh_lane(), q_unit = Q.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
  const int k_unit = K.unit(lane % 16, lane / 16 * 8);
#pragma unroll 1
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll 1
    for (int t = i; t < kBlocks; ++t) {
      float sums[2][4] = {};  // rows: keys 16 i to 16 i + 15; columns: queries 16 t to 16 t + 7, and the 8 after them
#pragma unroll 1
      for (int d = 0; d < kDk; d += 16) {
        std::uint32_t k[4], q[4];
        ldmatrix_x4(k, K.data + K.advance(k_unit, i * kBlock, d));
        ldmatrix_x4(q, Q.data + Q.advance(q_unit, t * kBlock, d));
        multiply(sums, 0, make_uint4(k[0], k[1], k[2], k[3]), q);
      }
      const uint4 p = P(lower_block(t, i));
      const std::uint32_t rounded[] = {p.x, p.z, p.y, p.w};
      std::uint32_t errors[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const float2 two = unpack(rounded[r]);
        const int key = i * kBlock + lane / 4 + r % 2 * 8, query = t * kBlock + r / 2 * 8 + lane % 4 * 2;
        const float* sum = sums[r / 2] + r % 2 * 2;
        errors[r] = pack(key <= query ? decay(query, key) * sum[0] - two.x : 0,
                         key <= query + 1 ? decay(query + 1, key) * sum[1] - two.y : 0);
      }
      const uint4 b = make_uint4(errors[0], errors[2], errors[1], errors[3]);
#pragma unroll
      for (int n = 0; n < kBlocks; ++n) {
#pragma unroll
        for (int m = n; m < kBlocks; ++m) {
          if (n == i && m == t) multiply(X, n, O[m], b);  // constants as indices into registers
        }
      }
    }
  }
}

/// add_errors_of_score_blocks() without decays. @param P [10, 32] in shared memory, as B fragments of the transposed blocks
template <int kDk>
__device__ __forceinline__ void add_errors_of_scores(WarpColumns& X, const WarpFragments& O, const uint4* P,
                                                     const SwizzledTile<kDk>& Q, const SwizzledTile<kDk>& K) {
  const auto block = [&](int number) { return flipped(P[number * 32 + fresh_lane()]); };
  add_errors_of_score_blocks(X, O, block, Q, K, [](int, int) { return 1.0f; });
}
/// multiply_errors_by_blocks(). @param T [10, 32] in shared memory, likewise
__device__ __forceinline__ void multiply_errors_transposed(WarpColumns& dV, WarpColumns& X, const uint4* T) {
  multiply_errors_by_blocks(dV, X, [&](int number) { return flipped(T[number * 32 + fresh_lane()]); });
}

}  // namespace tutorial::delta_rule
