#pragma once
/// @file
/// What a walk on fragments adds in a marked chunk (chunk/alike_keys.cuh): the products with what rounding to bf16 leaves
/// out of v_new, and, from the end, of P and X. As in gradient_walk.cuh, everything is transposed, and all lanes of a warp
/// call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/delta_rule_backward/gradient_walk.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/pack.cuh"

namespace tutorial::delta_rule {

/// What rounding leaves out of two accumulators side by side, in their place. @return it, rounded, as an A fragment
__device__ __forceinline__ uint4 errors_of(float (&left)[4], float (&right)[4]) {
  keep_errors(left);
  keep_errors(right);
  return rounded(left, right);
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
