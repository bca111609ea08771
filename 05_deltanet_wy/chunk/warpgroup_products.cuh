#pragma once
/// @file
/// The products of a chunk in a walk over chunks, computed by a warpgroup (common/device/wgmma.cuh). The warpgroup has
/// 64 columns of V, v_new, O and S. It holds all of these transposed, so the columns are the 64 rows of its products:
///
///     residual^T = V^T - S^T K^T           A = S^T          B = K^T     load_signed_values(), start_residual()
///     v_new^T    = residual^T T^T          A = residual^T   B = T^T     start_new_values()
///     S^T       += v_new^T K               A = v_new^T      B = K       start_state_update() of the tile layer
///     O^T        = S^T Q^T + v_new^T P^T   A = S^T, v_new^T B = Q^T, P^T
///                                          start_output_from_state() of the tile layer, start_output_from_values()
///
/// These are the products of warp_products.cuh, for four warps: sums, rounded to bf16, are the left factor of the next
/// product and stay in their registers. Everything else is in common/tile/warpgroup_chunk.cuh.
///
/// wgmma only adds, and a residual is a difference. So its sums begin with -V, end as K S - V, and T comes with the
/// opposite sign.
///
/// T is lower triangular: positions 0 to 31 of v_new depend only on positions 0 to 31 of the residual. So v_new is two
/// products of 32 positions each, and the first sums over half as many positions.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

using WarpgroupColumns = float[tile::kChunk / 2];                ///< a thread's part of a matrix [64, C]
using WarpgroupFragments = std::uint32_t[tile::kChunk / 16][4];  ///< the same in bf16, as fragments of A
using ValuePanel = tile::PanelTile<tile::kWarpgroupColumns>;     ///< the warpgroup's columns of V
using SquarePanel = tile::PanelTile<tile::kChunk>;               ///< P, or one of the two bf16 of T

inline constexpr std::uint32_t kPlus = 0;             ///< load_signed_values() leaves the signs of two bf16,
inline constexpr std::uint32_t kMinus = 0x80008000u;  ///< or changes them

/// sums = V^T or -V^T.
/// @param unit first_unit_of_columns()
/// @param sign kPlus or kMinus
__device__ __forceinline__ void load_signed_values(WarpgroupColumns& sums, const ValuePanel& V, int unit,
                                                   std::uint32_t sign) {
#pragma unroll
  for (int t = 0; t < tile::kChunk; t += 16) {
    std::uint32_t v[4];
    ldmatrix_x4_trans(v, V.data + V.advance(unit, t, 0));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = unpack(v[i] ^ sign);
      sums[t / 2 + 2 * i] = two.x;
      sums[t / 2 + 2 * i + 1] = two.y;
    }
  }
}

/// sums += S^T K^T.
template <int kDk>
__device__ __forceinline__ void start_residual(WarpgroupColumns& sums, const tile::RoundedState<kDk>& s,
                                               const tile::PanelTile<kDk>& K) {
  const auto k = tile::k_along_rows(K);
#pragma unroll
  for (int d = 0; d < kDk; d += 16) wgmma<tile::kChunk>(sums, s[d / 16], k.along_k(d), true);
}

/// Rounds a matrix to bf16.
__device__ __forceinline__ void round_columns(WarpgroupFragments& fragments, const WarpgroupColumns& sums) {
#pragma unroll
  for (int t = 0; t < tile::kChunk; t += 16) wgmma_fragment(fragments[t / 16], sums, t);
}

/// Half of a matrix's sums: those of positions 0 to 31, or 32 to 63.
__device__ __forceinline__ auto half_of(WarpgroupColumns& sums, int half) -> float (&)[tile::kChunk / 4] {
  return reinterpret_cast<float(&)[tile::kChunk / 4]>(sums[half * tile::kChunk / 4]);
}

/// v_new^T = residual^T T^T.
/// @param residual with the opposite sign
/// @param T_high,T_low -T in two bf16
__device__ __forceinline__ void start_new_values(WarpgroupColumns& v_new, const WarpgroupFragments& residual,
                                                 const SquarePanel& T_high, const SquarePanel& T_low) {
  const auto high = tile::k_along_rows(T_high), low = tile::k_along_rows(T_low);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = half * tile::kChunk / 2;
#pragma unroll
    for (int i = 0; i < t + tile::kChunk / 2; i += 16) {
      wgmma<tile::kChunk / 2>(half_of(v_new, half), residual[i / 16], high.along_mn(t).along_k(i), i > 0);
      wgmma<tile::kChunk / 2>(half_of(v_new, half), residual[i / 16], low.along_mn(t).along_k(i), true);
    }
  }
}

/// O^T += v_new^T P^T.
__device__ __forceinline__ void start_output_from_values(WarpgroupColumns& O, const WarpgroupFragments& v_new,
                                                         const SquarePanel& P) {
  const auto p = tile::k_along_rows(P);
#pragma unroll
  for (int i = 0; i < tile::kChunk; i += 16) wgmma<tile::kChunk>(O, v_new[i / 16], p.along_k(i), true);
}

}  // namespace tutorial::delta_rule
