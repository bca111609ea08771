#pragma once
/// @file
/// The products of a chunk in a walk over chunks. Each product leaves its result where the next one needs it, in the
/// registers of the same lane. That is why all of them are transposed:
///
///     residual^T = V^T - S^T K^T           A = S^T, B = K^T                       subtract_product()
///     v_new^T    = residual^T T^T          A = residual^T, B = T^T                add_v_new()
///     S^T       += v_new^T K               A = v_new^T, B = K                     add_v_new(), update_state()
///     O^T        = S^T Q^T + v_new^T P^T   A = S^T, v_new^T, B = Q^T, P^T         outputs()
///
/// A warp has 16 columns of V, v_new, O and S. Accumulators rounded to bf16 are an A fragment of the next product
/// (mma.cuh); the B factors are read from shared memory in the order in which they lie there.
///
/// mma only adds, and a residual is a difference. So its accumulators begin with -V, end as K S - V, and change sign as
/// they are rounded. No other sign changes.
///
/// T is split into two bf16 (split.cuh), so T times the residual is two products.
///
/// Normalised keys: K stays unscaled in shared memory, and each key has a factor f (prepare.hpp). The residual is V -
/// diag(f) K S, and v_new is diag(f) T residual. There f is the factor of the key that v_new is multiplied by next.
/// `factors` is null if keys are not normalised.
///
/// All lanes of a warp call each function. The tiles have been filled before. The caller places the barriers.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/fragments.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/movmatrix.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::delta_rule {

using tile::fresh_lane;
using tile::kChunk;
using tile::SwizzledTile;

/// B fragments of X^T for 16 columns d of X [64, kDk]: the rows of X are positions, and the sum runs over its columns.
template <int kDk>
__device__ __forceinline__ void load_transposed(std::uint32_t (&x)[kBlocks][4], const SwizzledTile<kDk>& X, int unit,
                                                int d) {
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) ldmatrix_x4(x[i], X.data + X.advance(unit, i * kBlock, d * 16));
}

/// sums += S^T X^T, for columns 16 d to 16 d + 15 of S^T. @param s their fragment
template <int kDk>
__device__ __forceinline__ void add_state_rows(WarpColumns& sums, const SwizzledTile<kDk>& X, int d, const uint4& s) {
  const int lane = fresh_lane(), unit = X.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
  std::uint32_t x[kBlocks][4];
  load_transposed(x, X, unit, d);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) multiply(sums, i, s, x[i]);
}

/// sums += S^T X^T. B fragments are loaded one step ahead of their use.
/// @param fragment fragment(d): that of columns 16 d to 16 d + 15 of S^T
template <int kDk, class Fragment>
__device__ __forceinline__ void add_from_state(WarpColumns& sums, const SwizzledTile<kDk>& X, Fragment fragment) {
  const int lane = fresh_lane(), unit = X.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
  std::uint32_t x[2][kBlocks][4];
  load_transposed(x[0], X, unit, 0);
#pragma unroll
  for (int d = 0; d < kDk / 16; ++d) {
    const uint4 s = fragment(d);
    if (d + 1 < kDk / 16) load_transposed(x[(d + 1) % 2], X, unit, d + 1);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) multiply(sums, i, s, x[d % 2][i]);
  }
}

/// Multiplies 8 columns of a warp's matrix, which are 8 positions, by their factors. @tparam kInverse divides by them
/// instead
template <bool kInverse = false>
__device__ __forceinline__ void scale_positions(float (&x)[4], const float* factors) {
  float2 f = *reinterpret_cast<const float2*>(factors + fresh_lane() % 4 * 2);
  if (kInverse) f = make_float2(__fdividef(1, f.x), __fdividef(1, f.y));
  x[0] *= f.x;
  x[1] *= f.y;
  x[2] *= f.x;
  x[3] *= f.y;
}

/// The same two bf16 with the opposite sign.
__device__ __forceinline__ std::uint32_t negated(std::uint32_t two) {
  return two ^ 0x80008000u;
}

/// accumulators = -V^T, the warp's columns.
template <int kWidth>
__device__ __forceinline__ void load_negated(WarpColumns& values, const SwizzledTile<kWidth>& V, int first_column) {
  const int lane = fresh_lane(), unit = V.unit(lane / 16 * 8 + lane % 8, first_column + lane / 8 % 2 * 8);
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    std::uint32_t v[4];
    ldmatrix_x4_trans(v, V.data + V.advance(unit, i * kBlock, 0));
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float2 two = unpack(negated(v[r]));
      values[2 * i + r / 2][r % 2 * 2] = two.x;
      values[2 * i + r / 2][r % 2 * 2 + 1] = two.y;
    }
  }
}

/// residual = -(sums + K S), transposed and rounded, or -diag(f) (sums + K S) with factors. Parameters as
/// subtract_product().
template <int kDk, class PassOn>
__device__ __forceinline__ void finish_residual(WarpFragments& residual, WarpColumns& sums, const SwizzledTile<kDk>& K,
                                                const WarpState<kDk>& S, PassOn pass_on, const float* factors) {
  add_from_state(sums, K, [&](int d) {
    const uint4 s = rounded(S[2 * d], S[2 * d + 1]);
    pass_on(d, s);
    return s;
  });
  if (factors) {
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) scale_positions(sums[i], factors + i * 8);
  }
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const uint4 x = rounded(sums[2 * i], sums[2 * i + 1]);
    residual[i] = make_uint4(negated(x.x), negated(x.y), negated(x.z), negated(x.w));
  }
}

/// residual = V - K S, transposed and rounded; or U - W S, if the caller passes U and W in place of V and K. With
/// factors, the sums begin with -V / f, so only one multiplication by f is left after the last product.
/// @param first_column the warp's, of V
/// @param pass_on pass_on(d, fragment): called with the fragment of columns 16 d to 16 d + 15 of S^T, rounded
/// @param factors f, [64] in shared memory, or null
template <int kDk, class PassOn>
__device__ __forceinline__ void subtract_product(WarpFragments& residual, const SwizzledTile<64>& V, int first_column,
                                                 const SwizzledTile<kDk>& K, const WarpState<kDk>& S, PassOn pass_on,
                                                 const float* factors = nullptr) {
  WarpColumns sums;
  load_negated(sums, V, first_column);
  if (factors) {
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) scale_positions<true>(sums[i], factors + i * 8);
  }
  finish_residual<kDk>(residual, sums, K, S, pass_on, factors);
}

/// S^T += v_new^T K, restricted to the positions 16 i to 16 i + 15.
template <int kDk>
__device__ __forceinline__ void update_state(WarpState<kDk>& S, const SwizzledTile<kDk>& K, const uint4& v_new, int i) {
  constexpr int kAtOnce = 8;  // loads in flight before the first is used
  const int lane = fresh_lane(), unit = K.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int first = 0; first < kDk / 16; first += kAtOnce) {
    std::uint32_t k[kAtOnce][4];
#pragma unroll
    for (int d = 0; d < kAtOnce && first + d < kDk / 16; ++d) {
      ldmatrix_x4_trans(k[d], K.data + K.advance(unit, i * kBlock, (first + d) * 16));
    }
#pragma unroll
    for (int d = 0; d < kAtOnce && first + d < kDk / 16; ++d) multiply(S, first + d, v_new, k[d]);
  }
}

/// A function of anything that does nothing.
struct Ignore {
  /// Does nothing.
  template <class... Anything>
  __device__ void operator()(Anything&&...) const {}
};

/// v_new = T residual, and S += K^T v_new. While one block of 16 positions is added to the state, the next one is
/// computed.
/// @param T [2, 10, 32] in shared memory
/// @param pass_on pass_on(i, fragment): called with v_new^T of the positions 16 i to 16 i + 15, rounded
/// @param factors f, [64] in shared memory, or null
/// @param pass_on_sums pass_on_sums(i, left, right): called with the same numbers before they are rounded
template <int kDk, class PassOn, class PassOnSums = Ignore>
__device__ __forceinline__ void add_v_new(WarpState<kDk>& S, const WarpFragments& residual, const uint4* T,
                                          const SwizzledTile<kDk>& K, PassOn pass_on, const float* factors = nullptr,
                                          PassOnSums pass_on_sums = {}) {
  const int lane = fresh_lane();
  WarpColumns sums = {};
  uint4 v_new;
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
    for (int i = j; i < kBlocks; ++i) {
      multiply(sums, i, residual[j], T[lower_block(i, j) * 32 + lane]);
      multiply(sums, i, residual[j], T[kBlockUnits + lower_block(i, j) * 32 + lane]);
    }
    if (j > 0) update_state<kDk>(S, K, v_new, j - 1);
    if (factors) {
      scale_positions(sums[2 * j], factors + j * kBlock);
      scale_positions(sums[2 * j + 1], factors + j * kBlock + 8);
    }
    v_new = rounded(sums[2 * j], sums[2 * j + 1]);
    pass_on(j, v_new);
    pass_on_sums(j, sums[2 * j], sums[2 * j + 1]);
  }
  update_state<kDk>(S, K, v_new, kBlocks - 1);
}

/// O += P v_new, transposed, restricted to the positions 16 i to 16 i + 15 of v_new.
/// @param P [10, 32] in shared memory
__device__ __forceinline__ void add_scores(WarpColumns& O, const uint4* P, int i, const uint4& v_new) {
  const int lane = fresh_lane();
#pragma unroll
  for (int t = i; t < kBlocks; ++t) multiply(O, t, v_new, P[lower_block(t, i) * 32 + lane]);
}

/// O = Q S + P v_new, transposed. @param S,v_new,P fragments in shared memory: [kDk / 16, 32], [4, 32], [10, 32]
template <int kDk>
__device__ __forceinline__ void outputs(WarpColumns& O, const SwizzledTile<kDk>& Q, const uint4* S, const uint4* P,
                                        const uint4* v_new) {
  const int lane = fresh_lane();
  add_from_state(O, Q, [&](int d) { return S[d * 32 + lane]; });
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) add_scores(O, P, i, v_new[i * 32 + lane]);
}

/// Writes O^T times a factor to device memory, in whole units of 16 bytes of O's rows.
/// @param staging [64, 16] in shared memory, the warp's own; the two units of a row swap places every four rows, to
/// avoid bank conflicts
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
