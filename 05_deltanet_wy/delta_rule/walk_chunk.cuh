#pragma once
/// @file
/// The products of a chunk in the walk of stage 8. All of them leave their result where the next one wants it: nothing
/// goes from lane to lane, and no warp waits for another.
///
///     V'^T = V^T - (S^T K^T) diag(f)        A = S^T, B = K^T      replace_values()
///     U'^T = V'^T T^T                       A = V'^T, B = T^T     solve()
///     O    = Q S + P U'                     B = S, B = U'         add_from_state(), in replace_values(); add_from_writes()
///     S^T += U'^T K                         A = U'^T, B = K       write_to_state()
///
/// A warp has 16 columns of V, U', O and S: rows of the transposed ones, so that these are A fragments of one tile of m.
/// With g = lane / 4 and p = 2 (lane % 4), from mma.cuh:
///
///     accumulator of S^T:  S^T[g][p, p+1]     rounded: the A fragment of S^T, and S[p, p+1][g], the B fragment of S
///     accumulator of V'^T: V'^T[g][p, p+1]    rounded: the A fragment of V'^T
///     accumulator of U'^T: U'^T[g][p, p+1]    rounded: the A fragment of U'^T, and the B fragment of U'

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/chunk_products.cuh"
#include "05_deltanet_wy/delta_rule/chunk_inverse.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"

namespace tutorial::delta_rule {

/// A matrix [16, 64] of a warp as accumulators: 8 columns each.
using Wide = float[8][4];
/// A matrix [16, 64] rounded to bf16: four A fragments, 16 columns each.
using WideFragments = std::uint32_t[kBlocks][4];

/// Two accumulators side by side as an A fragment.
__device__ __forceinline__ void round_to(std::uint32_t (&fragment)[4], const float (&left)[4], const float (&right)[4]) {
  fragment[0] = pack(left[0], left[1]);
  fragment[1] = pack(left[2], left[3]);
  fragment[2] = pack(right[0], right[1]);
  fragment[3] = pack(right[2], right[3]);
}

/// Block (r, c) of T or P as an A fragment. @param blocks [10, 32] in shared memory
__device__ __forceinline__ uint4 load_fragment(const uint4* blocks, int r, int c) {
  return blocks[lower_block(r, c) * 32 + linear_attention::fresh_lane()];
}

/// V' = V - diag(f) K S, transposed and rounded, and O += Q S.
template <class Shape>
__device__ __forceinline__ void replace_values(WideFragments& replaced, typename Shape::Output& O,
                                               const typename Shape::KeyTile& Q, const typename Shape::KeyTile& K,
                                               const typename Shape::ValueTile& V, const float* factors,
                                               const typename Shape::State& S) {
  const int lane = linear_attention::fresh_lane(), first_column = linear_attention::warp_index() * Shape::kWarpColumns;
  const int q_unit = Q.unit(lane % 16, lane / 16 * 8);
  const int k_unit = K.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
  Wide held = {};  // (K S)^T: what the state has under these keys
#pragma unroll
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    std::uint32_t s[4];
    round_to(s, S[0][2 * d], S[0][2 * d + 1]);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      std::uint32_t k[4];
      ldmatrix_x4(k, K.data + K.moved(k_unit, i * kBlock, d * 16));
      mma_m16n8k16(held[2 * i], s, {k[0], k[1]});
      mma_m16n8k16(held[2 * i + 1], s, {k[2], k[3]});
    }
#pragma unroll
    for (int t = 0; t < kBlocks; ++t) {
      std::uint32_t q[4];
      ldmatrix_x4(q, Q.data + Q.moved(q_unit, t * kBlock, d * 16));
      mma_m16n8k16(O[t][0], q, {s[0], s[2]});
      mma_m16n8k16(O[t][1], q, {s[1], s[3]});
    }
  }
  const int v_unit = V.unit(lane / 16 * 8 + lane % 8, first_column + lane / 8 % 2 * 8);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    std::uint32_t v[4];
    ldmatrix_x4_trans(v, V.data + V.moved(v_unit, i * kBlock, 0));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 f = *reinterpret_cast<const float2*>(factors + i * kBlock + half * 8 + lane % 4 * 2);
      const float(&x)[4] = held[2 * i + half];
      const float2 upper = unpack(v[2 * half]), lower = unpack(v[2 * half + 1]);
      replaced[i][2 * half] = pack(upper.x - f.x * x[0], upper.y - f.y * x[1]);
      replaced[i][2 * half + 1] = pack(lower.x - f.x * x[2], lower.y - f.y * x[3]);
    }
  }
}

/// U' = T V', transposed and rounded.
__device__ __forceinline__ void solve(WideFragments& written, const uint4* T, const WideFragments& replaced) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    float left[4] = {}, right[4] = {};
#pragma unroll
    for (int j = 0; j <= i; ++j) {
      const uint4 block = load_fragment(T, i, j);
      mma_m16n8k16(left, replaced[j], {block.x, block.z});
      mma_m16n8k16(right, replaced[j], {block.y, block.w});
    }
    round_to(written[i], left, right);
  }
}

/// O += P U'.
template <class Shape>
__device__ __forceinline__ void add_from_writes(typename Shape::Output& O, const uint4* P, const WideFragments& written) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int t = i; t < kBlocks; ++t) {
      const uint4 block = load_fragment(P, t, i);
      mma_m16n8k16(O[t][0], {block.x, block.y, block.z, block.w}, {written[i][0], written[i][2]});
      mma_m16n8k16(O[t][1], {block.x, block.y, block.z, block.w}, {written[i][1], written[i][3]});
    }
  }
}

/// S += K^T U'.
template <class Shape>
__device__ __forceinline__ void write_to_state(typename Shape::State& S, const typename Shape::KeyTile& K,
                                               const WideFragments& written) {
  const int lane = linear_attention::fresh_lane(), k_unit = K.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
#pragma unroll
    for (int d = 0; d < Shape::kDk / 16; ++d) {
      std::uint32_t k[4];
      ldmatrix_x4_trans(k, K.data + K.moved(k_unit, i * kBlock, d * 16));
      mma_m16n8k16(S[0][2 * d], written[i], {k[0], k[1]});
      mma_m16n8k16(S[0][2 * d + 1], written[i], {k[2], k[3]});
    }
  }
}

}  // namespace tutorial::delta_rule
