#pragma once
/// @file
/// The products of a chunk in a walk over chunks, with gates: chunk/warp_products.cuh, and where its decays go. A
/// warp holds everything transposed, so a decay of a position multiplies a column of its registers.
///
///     residual^T = V^T - (S^T K^T) D_k      D_k = diag(f exp(b))         subtract_decayed_product()
///     v_new^T    = residual^T T^T                                        add_decayed_v_new()
///     S^T        = exp(b_e) S^T + (v_new^T D_e) K,  D_e = diag(exp(b_e - b))
///     O^T        = (S^T Q^T) D_q + v_new^T P^T,     D_q = diag(exp(b))   decay_columns() between the two
///
/// The sums of a residual begin with zeros instead of -V, because -V would have to be divided by the decays that come
/// after the product, and these may be 0.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/warp_products.cuh"

namespace tutorial::gated_delta_rule {

using delta_rule::kBlock;
using delta_rule::kBlocks;
using delta_rule::WarpColumns;
using delta_rule::WarpFragments;
using delta_rule::WarpState;

/// Multiplies each column of a warp's matrix, which is a position, by its decay. @param decays [64] in shared memory
__device__ __forceinline__ void decay_columns(WarpColumns& x, const float* decays) {
#pragma unroll
  for (int i = 0; i < 2 * kBlocks; ++i) delta_rule::scale_positions(x[i], decays + i * 8);
}

/// residual = V - diag(decays) K S, transposed and rounded.
/// @param first_column the warp's, of V
/// @param decays D_k, [64] in shared memory
/// @param pass_on pass_on(d, fragment): called with the fragment of columns 16 d to 16 d + 15 of S^T, rounded
template <int kDk, class PassOn>
__device__ __forceinline__ void subtract_decayed_product(WarpFragments& residual, const tile::SwizzledTile<64>& V,
                                                         int first_column, const tile::SwizzledTile<kDk>& K,
                                                         const WarpState<kDk>& S, const float* decays, PassOn pass_on) {
  WarpColumns sums = {}, values;
  delta_rule::add_from_state(sums, K, [&](int d) {
    const uint4 s = delta_rule::rounded(S[2 * d], S[2 * d + 1]);
    pass_on(d, s);
    return s;
  });
  decay_columns(sums, decays);
  delta_rule::load_negated(values, V, first_column);
#pragma unroll
  for (int i = 0; i < 2 * kBlocks; ++i) {
#pragma unroll
    for (int element = 0; element < 4; ++element) sums[i][element] = -(values[i][element] + sums[i][element]);
  }
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) residual[i] = delta_rule::rounded(sums[2 * i], sums[2 * i + 1]);
}

/// v_new = T residual, and S = whole S + K^T diag(to_end) v_new. While one block of 16 positions is added to the state,
/// the next one is computed.
/// @param T [2, 10, 32] in shared memory
/// @param whole exp(b_e) @param to_end [64] in shared memory
/// @param pass_on pass_on(i, fragment): called with v_new^T of the positions 16 i to 16 i + 15, rounded, without to_end
/// @param pass_on_sums pass_on_sums(i, left, right): called with the same numbers before they are rounded
template <int kDk, class PassOn, class PassOnSums = delta_rule::Ignore>
__device__ __forceinline__ void add_decayed_v_new(WarpState<kDk>& S, const WarpFragments& residual, const uint4* T,
                                                  const tile::SwizzledTile<kDk>& K, float whole, const float* to_end,
                                                  PassOn pass_on, PassOnSums pass_on_sums = {}) {
  const int lane = tile::fresh_lane();
  WarpColumns sums = {};
  uint4 v_new;
#pragma unroll
  for (auto& columns : S) {
#pragma unroll
    for (float& element : columns) element *= whole;
  }
#pragma unroll
  for (int j = 0; j < kBlocks; ++j) {
#pragma unroll
    for (int i = j; i < kBlocks; ++i) {
      const uint4* block = T + delta_rule::lower_block(i, j) * 32 + lane;
      delta_rule::multiply(sums, i, residual[j], block[0]);
      delta_rule::multiply(sums, i, residual[j], block[delta_rule::kBlockUnits]);
    }
    if (j > 0) delta_rule::update_state<kDk>(S, K, v_new, j - 1);
    float(&left)[4] = sums[2 * j], (&right)[4] = sums[2 * j + 1];
    pass_on(j, delta_rule::rounded(left, right));
    pass_on_sums(j, left, right);
    delta_rule::scale_positions(left, to_end + j * kBlock);
    delta_rule::scale_positions(right, to_end + j * kBlock + 8);
    v_new = delta_rule::rounded(left, right);
  }
  delta_rule::update_state<kDk>(S, K, v_new, kBlocks - 1);
}

}  // namespace tutorial::gated_delta_rule
