#pragma once
/// @file
/// The products of a walk from the end on fragments, for `--backward` with and without gates. As in warp_products.cuh,
/// everything is transposed: a warp has 16 columns of dO, dV and dS.
///
///     X^T   = dS^T K^T + dO^T P          A = dS^T, dO^T;  B = K^T, P         add_from_state(), add_transposed_scores()
///     dV^T  = X^T T                      A = X^T;         B = T              multiply_transposed()
///     dS^T += dO^T Q - dV^T K            A = dO^T, dV^T;  B = Q, K           update_state()
///
/// If P and T lie in memory as the B fragments of their transposes, their blocks are transposed in registers.
///
/// All lanes of a warp call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

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

}  // namespace tutorial::delta_rule
