#pragma once
/// @file
/// The products of a chunk in the walk of stage 8; stage 7 has some of them with S for N. Each leaves its result where
/// the next one wants it: in the registers of the same lane. For this all of them are transposed, and their signs are
/// such that mma, which only adds, need not subtract: a warp keeps N = -S, and prepare() has left T with a minus.
///
///     V'^T = V^T + N^T K^T diag(f)                 A = N^T, B = K^T            replace_values()
///     U'^T = V'^T T^T diag(f)        (this is -f U')        A = V'^T, B = T^T           write_values()
///     N^T += U'^T K                               A = U'^T, B = K
///
/// and beside that chain, by another warp,
///
///     -O^T = N^T Q^T + U'^T P^T                   A = N^T, U'^T, B = Q^T, P^T     outputs()
///
/// A warp has 16 columns of V, U', O and S: rows of the transposed ones, one tile of m. Accumulators rounded to bf16
/// are an A fragment of the next product (mma.cuh); the factors B come from shared memory, each as it lies there.
///
/// T is split into two bf16 (split.cuh), so T V' is two products. Where keys are alike, the sums of T's rows are close
/// to zero, and what one bf16 leaves out of its elements goes wrong in the same direction for all 64 positions
/// (README.md). All lanes of a warp call each function, when the tiles are filled; barriers are the caller's.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/chunk_products.cuh"
#include "05_deltanet_wy/delta_rule/chunk_inverse.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/movmatrix.cuh"
#include "common/device/pack.cuh"

namespace tutorial::delta_rule {

using linear_attention::fresh_lane;
using linear_attention::kChunk;
using linear_attention::SwizzledTile;

/// N^T of a warp, [16, kDk], as accumulators: 8 columns each.
template <int kDk>
using WarpState = float[kDk / 8][4];
/// A matrix [16, 64] of a warp, likewise.
using WarpColumns = float[2 * kBlocks][4];
/// Such a matrix rounded to bf16: four A fragments, 16 columns each.
using WarpFragments = uint4[kBlocks];

/// Two accumulators side by side as an A fragment.
__device__ __forceinline__ uint4 rounded(const float (&left)[4], const float (&right)[4]) {
  return make_uint4(pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]), pack(right[2], right[3]));
}

/// The accumulators of columns 16 i to 16 i + 15 += A B. @param b B's fragments for the left and the right 8 columns
template <int kCount>
__device__ __forceinline__ void multiply(float (&sums)[kCount][4], int i, const uint4& a, const std::uint32_t (&b)[4]) {
  mma_m16n8k16(sums[2 * i], {a.x, a.y, a.z, a.w}, {b[0], b[1]});
  mma_m16n8k16(sums[2 * i + 1], {a.x, a.y, a.z, a.w}, {b[2], b[3]});
}
/// The same with the four registers of B as ldmatrix or a load of 16 bytes gives them.
template <int kCount>
__device__ __forceinline__ void multiply(float (&sums)[kCount][4], int i, const uint4& a, const uint4& b) {
  multiply(sums, i, a, {b.x, b.y, b.z, b.w});
}

/// Fragments B of X^T for 16 columns d of X [64, kDk]: X's rows are positions, its columns what is summed over.
template <int kDk>
__device__ __forceinline__ void load_transposed(std::uint32_t (&x)[kBlocks][4], const SwizzledTile<kDk>& X, int unit,
                                                int d) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) ldmatrix_x4(x[i], X.data + X.moved(unit, i * kBlock, d * 16));
}

/// sums += N^T X^T. Fragments are loaded one step ahead of their use.
/// @param fragment fragment(d): N^T's for columns 16 d to 16 d + 15
template <int kDk, class Fragment>
__device__ __forceinline__ void add_from_state(WarpColumns& sums, const SwizzledTile<kDk>& X, Fragment fragment) {
  const int lane = fresh_lane(), unit = X.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
  std::uint32_t x[2][kBlocks][4];
  load_transposed(x[0], X, unit, 0);
#pragma unroll
  for (int d = 0; d < kDk / 16; ++d) {
    const uint4 a = fragment(d);
    if (d + 1 < kDk / 16) load_transposed(x[(d + 1) % 2], X, unit, d + 1);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) multiply(sums, i, a, x[d % 2][i]);
  }
}

/// Multiplies 8 columns of a matrix of a warp, 8 positions, by their factors.
template <bool kDivide = false>
__device__ __forceinline__ void scale_positions(float (&x)[4], const float* factors) {
  float2 f = *reinterpret_cast<const float2*>(factors + fresh_lane() % 4 * 2);
  if (kDivide) f = make_float2(__fdividef(1, f.x), __fdividef(1, f.y));
  x[0] *= f.x;
  x[1] *= f.y;
  x[2] *= f.x;
  x[3] *= f.y;
}

/// V' = V - diag(f) K S, transposed and rounded. Sums begin with V / f, so that after the last product nothing
/// but a factor is left to do.
/// @param first_column the warp's, of V
/// @param factors f, [64] in shared memory; null where all are 1
/// @param shown [kDk / 16, 32] in shared memory: gets N^T rounded, as fragments
template <int kDk>
__device__ __forceinline__ void replace_values(WarpFragments& replaced, const WarpState<kDk>& N,
                                               const SwizzledTile<kDk>& K, const SwizzledTile<64>& V, int first_column,
                                               const float* factors, uint4* shown) {
  const int lane = fresh_lane();
  WarpColumns values;
  const int v_unit = V.unit(lane / 16 * 8 + lane % 8, first_column + lane / 8 % 2 * 8);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    std::uint32_t v[4];
    ldmatrix_x4_trans(v, V.data + V.moved(v_unit, i * kBlock, 0));
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float2 two = unpack(v[r]);
      values[2 * i + r / 2][r % 2 * 2] = two.x;
      values[2 * i + r / 2][r % 2 * 2 + 1] = two.y;
    }
  }
  if (factors) {
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) scale_positions<true>(values[i], factors + i * 8);
  }
  add_from_state(values, K, [&](int d) { return shown[d * 32 + lane] = rounded(N[2 * d], N[2 * d + 1]); });
  if (factors) {
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) scale_positions(values[i], factors + i * 8);
  }
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) replaced[i] = rounded(values[2 * i], values[2 * i + 1]);
}

/// N^T += U'^T K, as far as it comes from the positions 16 i to 16 i + 15.
template <int kDk>
__device__ __forceinline__ void write_to_state(WarpState<kDk>& N, const SwizzledTile<kDk>& K, const uint4& written,
                                               int i) {
  constexpr int kAtOnce = 8;  // loads on their way before the first is used
  const int lane = fresh_lane(), unit = K.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int first = 0; first < kDk / 16; first += kAtOnce) {
    std::uint32_t k[kAtOnce][4];
#pragma unroll
    for (int d = 0; d < kAtOnce && first + d < kDk / 16; ++d) {
      ldmatrix_x4_trans(k[d], K.data + K.moved(unit, i * kBlock, (first + d) * 16));
    }
#pragma unroll
    for (int d = 0; d < kAtOnce && first + d < kDk / 16; ++d) multiply(N, first + d, written, k[d]);
  }
}

/// U' = diag(f) T V', and N = N + K^T U'. A block of 16 positions goes into the state as soon as it is there, while the
/// next one is computed.
/// @param T [2, 10, 32] in shared memory
/// @param factors f, [64] in shared memory; null where all are 1
/// @param shown [4, 32] in shared memory: gets U'^T rounded, as fragments
template <int kDk>
__device__ __forceinline__ void write_values(WarpState<kDk>& N, const WarpFragments& replaced, const uint4* T,
                                             const SwizzledTile<kDk>& K, const float* factors, uint4* shown) {
  const int lane = fresh_lane();
  WarpColumns sums = {};
  uint4 written;
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
    for (int i = j; i < kBlocks; ++i) {
      multiply(sums, i, replaced[j], T[lower_block(i, j) * 32 + lane]);
      multiply(sums, i, replaced[j], T[(kLowerBlocks + lower_block(i, j)) * 32 + lane]);
    }
    if (j > 0) write_to_state<kDk>(N, K, written, j - 1);
    if (factors) {
      scale_positions(sums[2 * j], factors + j * kBlock);
      scale_positions(sums[2 * j + 1], factors + j * kBlock + 8);
    }
    written = rounded(sums[2 * j], sums[2 * j + 1]);
    shown[j * 32 + lane] = written;
  }
  write_to_state<kDk>(N, K, written, kBlocks - 1);
}

/// -O = Q N + P U', transposed. @param state, P, written fragments in shared memory: [kDk / 16, 32], [10, 32], [4, 32]
template <int kDk>
__device__ __forceinline__ void outputs(WarpColumns& O, const SwizzledTile<kDk>& Q, const uint4* state, const uint4* P,
                                        const uint4* written) {
  const int lane = fresh_lane();
  add_from_state(O, Q, [&](int d) { return state[d * 32 + lane]; });
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const uint4 u = written[i * 32 + lane];
#pragma unroll
    for (int t = i; t < kBlocks; ++t) multiply(O, t, u, P[lower_block(t, i) * 32 + lane]);
  }
}

/// Writes O^T times a factor to global memory, in whole units of 16 bytes of O's rows.
/// @param staging [64, 16] in shared memory, the warp's own; units of a row change places with every fourth row,
/// against bank conflicts
/// @param o the warp's first column of the chunk's first row; rows are stride_l elements apart
/// @param rows how many of the 64 exist
/// @param columns how many of the 16 exist: none or all
__device__ __forceinline__ void store_warp_output(__nv_bfloat16* o, std::int64_t stride_l, int rows, int columns,
                                                  const WarpColumns& O, float factor, __nv_bfloat16* staging) {
  const int lane = fresh_lane();
  const auto unit = [&](int row, int half) { return staging + row * kBlock + (half ^ row / 4 % 2) * 8; };
  __syncwarp();
#pragma unroll
  for (int t = 0; t < kBlocks * 2; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<std::uint32_t*>(unit(t * 8 + lane / 4, half) + lane % 4 * 2) =
          transpose_8x8(pack(factor * O[t][2 * half], factor * O[t][2 * half + 1]));
    }
  }
  __syncwarp();
  if (columns <= 0) return;
  o += lane / 2 * stride_l + lane % 2 * 8;
#pragma unroll
  for (int i = 0; i < kChunk / 16; ++i) {
    const int row = i * 16 + lane / 2;
    if (row < rows) {
      store_global(reinterpret_cast<uint4*>(o + i * 16 * stride_l),
                   *reinterpret_cast<const uint4*>(unit(row, lane % 2)));
    }
  }
}

}  // namespace tutorial::delta_rule
