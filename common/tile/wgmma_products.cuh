#pragma once
/// @file
/// The four products of a chunk by warpgroups (common/device/wgmma.cuh). A warpgroup has 64 columns of Dv and holds the
/// state and the outputs of these columns transposed, so that these columns are the 64 rows of its products:
///
///     P         = (Q K^T) . M      start_scores(), store_masked_scores()   [C, C]     A = Q     B = K^T
///     O^T       = S^T Q^T          start_output_from_state()               [64, C]    A = S^T   B = Q^T
///     O^T      += V^T P^T          start_output_from_scores()              [64, C]    A = V^T   B = P^T
///     S^T      += V^T K            start_state_update()                    [64, Dk]   A = V^T   B = K
///
/// S^T stays in the sums of its product from the first chunk to the last, in fp32. Rounded to bf16 it is the left
/// factor of the second product, from registers (round_state()). All other factors come from shared memory, in the
/// layout that they have there. A product sums over an index, k in PTX. In Q K^T that is the column of the tiles Q and
/// K; in V^T K it is the row (the position) of the tiles V and K. A product reads a tile of bf16 in either direction,
/// so no tile is transposed: a flag says whether k runs along a row (k_along_rows()) or from row to row
/// (k_from_row_to_row()).
///
/// All four warps of a warpgroup call each function; the functions named start_... leave their products uncommitted.
/// The caller puts wgmma_fence() before and wgmma_commit() and wgmma_wait() after them. Tiles that a product reads must
/// be filled. A product sees data that threads have stored only after fence_async_proxy() and a barrier.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/device/hide_from_compiler.cuh"
#include "common/device/memory.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/state_strides.hpp"

namespace tutorial::tile {

inline constexpr int kWarpgroup = 128;        ///< threads of a warpgroup
inline constexpr int kWarpgroupColumns = 64;  ///< columns of Dv that a warpgroup has

using WarpgroupScores = float[kChunk / 2];  ///< a thread's part of Q K^T [C, C]
using WarpgroupOutput = float[kChunk / 2];  ///< of O^T [64, C]
template <int kDk>
using WarpgroupState = float[kDk / 2];  ///< of S^T [64, kDk]
template <int kDk>
using RoundedState = std::uint32_t[kDk / 16][4];  ///< the same in bf16, as fragments of A

/// The number of the warp in its warpgroup, 0 to 3.
__device__ __forceinline__ int warp_in_group() {
  return int(threadIdx.x) / 32 % 4;
}

/// A tile as a factor whose k runs along its rows.
template <int kColumns, int kRows>
__device__ __forceinline__ SharedFactor<Major::kK> k_along_rows(const PanelTile<kColumns, kRows>& tile) {
  return {tile.data, tile.kPanelBytes};
}
/// A tile as a factor whose k are its rows.
template <int kColumns, int kRows>
__device__ __forceinline__ SharedFactor<Major::kMn> k_from_row_to_row(const PanelTile<kColumns, kRows>& tile) {
  return {tile.data, tile.kPanelBytes};
}

/// scores = Q K^T. If K has more rows than a chunk has positions, the scores have more columns by the same number.
template <int kDk, int kRows>
__device__ __forceinline__ void start_scores(float (&scores)[kRows / 2], const PanelTile<kDk>& Q,
                                             const PanelTile<kDk, kRows>& K) {
  const auto q = k_along_rows(Q), k = k_along_rows(K);
#pragma unroll
  for (int d = 0; d < kDk; d += 16) wgmma<kRows>(scores, q.along_k(d), k.along_k(d), d > 0);
}

/// P = scores . M in bf16, where M[t][i] = 1 for i <= t, else 0. It uses only the first C columns of the scores.
/// @param is_reversed M[t][i] = 1 for i >= t instead
template <int kSums>
__device__ __forceinline__ void store_masked_scores(const PanelTile<kChunk>& P, float (&scores)[kSums],
                                                    bool is_reversed = false) {
  const int lane = int(lane_index()), first_row = warp_in_group() * 16;
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) {
#pragma unroll
    for (int n = i / 2; n < i / 2 + 8; ++n) {
      const int after = wgmma_column(n) - wgmma_row(n);
      if (is_reversed ? after < 0 : after > 0) scores[n] = 0;
    }
    std::uint32_t p[4];
    wgmma_fragment(p, scores, i);
    stmatrix(P.data + P.unit(first_row + lane % 16, i + lane / 16 * 8), p);
  }
}

/// s = S^T rounded to bf16.
template <int kDk>
__device__ __forceinline__ void round_state(RoundedState<kDk>& s, const WarpgroupState<kDk>& S) {
#pragma unroll
  for (int d = 0; d < kDk; d += 16) wgmma_fragment(s[d / 16], S, d);
}

/// O^T = S^T Q^T.
template <int kDk>
__device__ __forceinline__ void start_output_from_state(WarpgroupOutput& O, const RoundedState<kDk>& s,
                                                        const PanelTile<kDk>& Q) {
  const auto q = k_along_rows(Q);
#pragma unroll
  for (int d = 0; d < kDk; d += 16) wgmma<kChunk>(O, s[d / 16], q.along_k(d), d > 0);
}

/// O^T += V^T P^T, or O^T = V^T P^T.
/// @param V the warpgroup's columns
__device__ __forceinline__ void start_output_from_scores(WarpgroupOutput& O, const PanelTile<kWarpgroupColumns>& V,
                                                         const PanelTile<kChunk>& P, bool accumulate = true) {
  const auto v = k_from_row_to_row(V);
  const auto p = k_along_rows(P);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kChunk>(O, v.along_k(i), p.along_k(i), accumulate || i > 0);
}

/// S^T += V^T K.
/// @param V the warpgroup's columns
/// @param K its first C rows
template <int kDk, int kRows>
__device__ __forceinline__ void start_state_update(WarpgroupState<kDk>& S, const PanelTile<kWarpgroupColumns>& V,
                                                   const PanelTile<kDk, kRows>& K) {
  const auto v = k_from_row_to_row(V), k = k_from_row_to_row(K);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kDk>(S, v.along_k(i), k.along_k(i), true);
}

/// Where this lane begins in a tile [C, 64] of which its warp moves 16 columns, transposed: the unit of put_output(), and
/// of loads of V^T. It is the same in all chunks.
__device__ __forceinline__ int first_unit_of_columns() {
  const int lane = int(lane_index());
  return PanelTile<kWarpgroupColumns>::unit(lane / 16 * 8 + lane % 8, warp_in_group() * 16 + lane / 8 % 2 * 8);
}

/// Rounds O^T to bf16 and writes it transposed, so that row t of the tile is position t, times the factor of t. Each
/// warp writes its 16 columns.
/// @param factors factors(t), t even, returns the factors of positions t and t + 1
/// @param unit first_unit_of_columns(). A loop that keeps it in a register does not compute it again for each chunk
template <class Factors>
requires std::is_invocable_v<Factors, int> __device__ __forceinline__ void put_output(
    const PanelTile<kWarpgroupColumns>& tile, const WarpgroupOutput& O, Factors factors,
    int unit = first_unit_of_columns()) {
  const int lane = int(lane_index());
#pragma unroll
  for (int t = 0; t < kChunk; t += 16) {
    std::uint32_t o[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 two = factors(t + half * 8 + lane % 4 * 2);
      const float* sums = O + t / 2 + half * 4;
      o[2 * half] = pack(two.x * sums[0], two.y * sums[1]);
      o[2 * half + 1] = pack(two.x * sums[2], two.y * sums[3]);
    }
    stmatrix<true>(tile.data + tile.advance(unit, t, 0), o);
  }
}

/// The same with one factor for all positions.
__device__ __forceinline__ void put_output(const PanelTile<kWarpgroupColumns>& tile, const WarpgroupOutput& O,
                                           float factor, int unit = first_unit_of_columns()) {
  put_output(
      tile, O,
      [=](int) {
        return float2{factor, factor};
      },
      unit);
}

/// Calls f(element, address) for each element of the state that the thread holds and that exists, with its address in
/// device memory.
/// @param state the first row's element of the warpgroup's first column
/// @param stride the layout of the state there
/// @param Dk,columns rows of the state and columns of the warpgroup that exist
template <int kDk, class Float, class F>
__device__ __forceinline__ void for_each_state_element(WarpgroupState<kDk>& S, Float* state, StateStrides stride,
                                                       int Dk, int columns, F f) {
  // Otherwise the compiler may keep the place of each element in a register during a walk.
  const int first_d = hide_from_compiler(wgmma_column(0)), first_column = wgmma_row(0);
#pragma unroll
  for (int i = 0; i < kDk / 2; ++i) {
    const int d = first_d + wgmma_column(i) - wgmma_column(0), column = first_column + wgmma_row(i) - wgmma_row(0);
    if (d < Dk && column < columns) f(S[i], state + d * stride.row + column * stride.column);
  }
}

/// S = a state in fp32, and zeros for elements that do not exist; see for_each_state_element(). The previous kernel may
/// have written it (common/device/early_start.cuh).
/// @param state null: all zeros
template <int kDk>
__device__ __forceinline__ void load_group_state(WarpgroupState<kDk>& S, const float* state, StateStrides stride,
                                                 int Dk, int columns) {
#pragma unroll
  for (float& element : S) element = 0;
  if (state == nullptr) return;
  for_each_state_element<kDk>(S, state, stride, Dk, columns,
                              [](float& element, const float* address) { element = load_for_update(address); });
}

/// Writes a state; see for_each_state_element().
template <int kDk>
__device__ __forceinline__ void store_group_state(float* state, WarpgroupState<kDk>& S, StateStrides stride, int Dk,
                                                  int columns) {
  for_each_state_element<kDk>(S, state, stride, Dk, columns,
                              [](float& element, float* address) { store_global(address, element); });
}

}  // namespace tutorial::tile
