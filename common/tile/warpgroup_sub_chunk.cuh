#pragma once
/// @file
/// The products of a sub-chunk of 16 positions with gates, by warpgroups: what walk_sub_chunk.cuh does by mma. As in
/// warpgroup_chunk.cuh, whose layouts these are, a warpgroup has 64 columns of Dv and holds what belongs to them
/// transposed. With S before the sub-chunk, s = S rounded, and D the decay of the whole sub-chunk for each row of S:
///
///     O^T   = s^T q~^T + V^T P^T      start_sub_chunk_output()    [64, 16]    A = s^T, V^T     B = q~^T, P^T
///     S^T   = S^T diag(D)             round_and_decay_state()     [64, Dk]    on ordinary units, in the sums
///     S^T  += V^T k~                  start_sub_chunk_update()    [64, Dk]    A = V^T          B = k~
///
/// round_and_decay_state() reads and writes the sums of the last product. So the warpgroup has waited for that product, and
/// calls wgmma_fence() with S before the next one. A product that only reads s may run meanwhile.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/tile/float_panels.cuh"
#include "common/tile/sub_chunk.hpp"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::tile {

using SubChunkOutput = float[kSubChunk / 2];  ///< a thread's part of O^T [64, 16]
/// The decays of a chunk's sub-chunks, [4, kDk], as a bulk copy brings them.
template <int kDk>
using DecayPanels = FloatPanels<kSubChunks, kDk>;

/// O^T = s^T q~^T + V^T P^T.
/// @param row the first of the sub-chunk's rows in the tiles
/// @param p P^T [16, 16] of the sub-chunk
template <int kDk, Major kMajor>
__device__ __forceinline__ void start_sub_chunk_output(SubChunkOutput& O, const RoundedState<kDk>& s,
                                                       const PanelTile<kDk>& Q, const PanelTile<kWarpgroupColumns>& V,
                                                       const SharedFactor<kMajor>& p, int row) {
  const auto q = k_along_rows(Q).along_mn(row);
#pragma unroll
  for (int d = 0; d < kDk; d += 16) wgmma<kSubChunk>(O, s[d / 16], q.along_k(d), d > 0);
  wgmma<kSubChunk>(O, k_from_row_to_row(V).along_k(row), p, true);
}

/// s = S^T rounded to bf16, then S^T = S^T diag(D). 16 rows of S after the other, so that S stays in its registers.
/// @param sub_chunk whose decays, 0 to 3
template <int kDk>
__device__ __forceinline__ void round_and_decay_state(RoundedState<kDk>& s, WarpgroupState<kDk>& S,
                                                      const DecayPanels<kDk>& decays, int sub_chunk) {
  const int first_column = fresh_lane() % 4 * 2;
#pragma unroll
  for (int d = 0; d < kDk; d += 16) {
    wgmma_fragment(s[d / 16], S, d);
#pragma unroll
    for (int half = d; half < d + 16; half += 8) {
      const float2 two = *reinterpret_cast<const float2*>(decays.at(sub_chunk, first_column + half));
      float* of_half = S + half / 2;
      of_half[0] *= two.x;
      of_half[1] *= two.y;
      of_half[2] *= two.x;
      of_half[3] *= two.y;
    }
  }
}

/// S^T += V^T k~.
/// @param row the first of the sub-chunk's rows in the tiles
template <int kDk>
__device__ __forceinline__ void start_sub_chunk_update(WarpgroupState<kDk>& S, const PanelTile<kWarpgroupColumns>& V,
                                                       const PanelTile<kDk>& K, int row) {
  wgmma<kDk>(S, k_from_row_to_row(V).along_k(row), k_from_row_to_row(K).along_k(row), true);
}

/// Rounds O^T, times a factor, to bf16 and writes it transposed, from a row of the tile on. Each warp writes its 16
/// columns.
__device__ __forceinline__ void put_sub_chunk_output(const PanelTile<kWarpgroupColumns>& tile, const SubChunkOutput& O,
                                                     int row, float factor) {
  const int lane = fresh_lane(), first_column = warp_index() % 4 * 16;
  std::uint32_t o[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) o[i] = pack(factor * O[2 * i], factor * O[2 * i + 1]);
  stmatrix<true>(tile.data + tile.unit(row + lane % 8 + lane / 16 * 8, first_column + lane / 8 % 2 * 8), o);
}

}  // namespace tutorial::tile
