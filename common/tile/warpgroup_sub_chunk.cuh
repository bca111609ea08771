#pragma once
/// @file
/// The products of a sub-chunk of 16 positions with gates, by warpgroups. walk_sub_chunk.cuh computes the same by mma.
/// The layouts are those of wgmma_products.cuh: a warpgroup has 64 columns of Dv and holds the state and the outputs
/// of these columns transposed. With S before the sub-chunk, s = S rounded, and D the decay of the whole sub-chunk for
/// each row of S:
///
///     O^T   = s^T q~^T                start_sub_chunk_output()    [64, 16]    A = s^T          B = q~^T
///     O^T  += V^T P^T                 start_sub_chunk_output()    [64, 16]    A = V^T          B = P^T
///     S^T   = S^T diag(D)             decay_state()               [64, Dk]    on ordinary units, in the sums
///     S^T  += V^T k~                  start_sub_chunk_update()    [64, Dk]    A = V^T          B = k~
///
/// decay_state() reads and writes the sums of the last product. So the warpgroup must wait for that product before it
/// calls decay_state(), and must call wgmma_fence() with S before the next product. A product that only reads s may run
/// meanwhile.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/tile/sub_chunk.hpp"
#include "common/tile/wgmma_products.cuh"

namespace tutorial::tile {

using SubChunkOutput = float[kSubChunk / 2];  ///< a thread's part of O^T [64, 16]
/// The decays of the rows of S that a thread has: those of rows d and d + 1, d = 8 i + 2 (thread % 4), in element i.
template <int kDk>
using StateDecays = float2[kDk / 8];

/// O^T = s^T q~^T.
/// @param q the sub-chunk's 16 rows of q~
template <int kDk>
__device__ __forceinline__ void start_sub_chunk_output(SubChunkOutput& O, const RoundedState<kDk>& s,
                                                       const SharedFactor<Major::kK>& q) {
#pragma unroll
  for (int d = 0; d < kDk; d += 16) wgmma<kSubChunk>(O, s[d / 16], q.along_k(d), d > 0);
}

/// O^T += V^T P^T.
/// @param v the sub-chunk's 16 rows of V
/// @param p P^T [16, 16]
template <Major kMajor>
__device__ __forceinline__ void start_sub_chunk_output(SubChunkOutput& O, const SharedFactor<Major::kMn>& v,
                                                       const SharedFactor<kMajor>& p) {
  wgmma<kSubChunk>(O, v, p, true);
}

/// S^T = S^T diag(D).
template <int kDk>
__device__ __forceinline__ void decay_state(WarpgroupState<kDk>& S, const StateDecays<kDk>& decays) {
#pragma unroll
  for (int i = 0; i < kDk / 2; i += 4) {
    S[i] *= decays[i / 4].x;
    S[i + 1] *= decays[i / 4].y;
    S[i + 2] *= decays[i / 4].x;
    S[i + 3] *= decays[i / 4].y;
  }
}

/// S^T += V^T k~.
/// @param v,k the sub-chunk's 16 rows of V and of k~
template <int kDk>
__device__ __forceinline__ void start_sub_chunk_update(WarpgroupState<kDk>& S, const SharedFactor<Major::kMn>& v,
                                                       const SharedFactor<Major::kMn>& k) {
  wgmma<kDk>(S, v, k, true);
}

/// The place in row 0 and its neighbours where a lane writes outputs. Those of 16 rows further lie 16 * 64 elements
/// further.
__device__ __forceinline__ __nv_bfloat16* sub_chunk_output_place(const PanelTile<kWarpgroupColumns>& tile) {
  const int lane = fresh_lane(), first_column = warp_index() % 4 * 16;
  return tile.data + tile.unit(lane % 8 + lane / 16 * 8, first_column + lane / 8 % 2 * 8);
}

/// Rounds O^T, times a factor, to bf16 and writes it transposed. Each warp writes its 16 columns.
/// @param place sub_chunk_output_place(), of these 16 rows
__device__ __forceinline__ void put_sub_chunk_output(__nv_bfloat16* place, const SubChunkOutput& O, float factor) {
  std::uint32_t o[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) o[i] = pack(factor * O[2 * i], factor * O[2 * i + 1]);
  stmatrix<true>(place, o);
}

/// The same from a row of the tile on, a multiple of 16.
__device__ __forceinline__ void put_sub_chunk_output(const PanelTile<kWarpgroupColumns>& tile, const SubChunkOutput& O,
                                                     int row, float factor) {
  put_sub_chunk_output(sub_chunk_output_place(tile) + row * 64, O, factor);
}

}  // namespace tutorial::tile
