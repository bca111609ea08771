#pragma once
/// @file
/// What the gradients add to a chunk that warpgroups compute: scores from behind, and the products of rows for dg.

#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla/chunk_decays.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {

/// p = P^T in bf16, computed by a warpgroup that has K Q^T: a row is the position i of a key, and a column t >= i that
/// of a query. The factors are multiplied in the same order as in
/// decay_scores(), so that P^T has the bits of P.
__device__ __forceinline__ void decay_transposed_scores(tile::ScoreFragments& p, tile::WarpgroupScores& scores,
                                                        const ChunkDecays& decays, float scale) {
  const int first_row = tile::warp_in_group() * 16;
  const float end = decays.b(first_row + 15);
  const float upper = decays.b(wgmma_row(0)), lower = decays.b(wgmma_row(2));
  const float upper_to_end = tile::ex2(end - upper), lower_to_end = tile::ex2(end - lower);
#pragma unroll
  for (int t = 0; t < kChunk; t += 16) {
    for (std::uint32_t& two : p[t / 16]) two = 0;
    if (t > first_row) {
#pragma unroll
      for (int n = t / 2; n < t / 2 + 8; n += 4) {
        const int column = wgmma_column(n);
        const float first = scale * tile::ex2(decays.b(column) - end);
        const float second = scale * tile::ex2(decays.b(column + 1) - end);
        scores[n] *= first * upper_to_end;
        scores[n + 1] *= second * upper_to_end;
        scores[n + 2] *= first * lower_to_end;
        scores[n + 3] *= second * lower_to_end;
      }
      wgmma_fragment(p[t / 16], scores, t);
    } else if (t == first_row) {
#pragma unroll
      for (int n = t / 2; n < t / 2 + 8; ++n) {
        const int column = wgmma_column(n);
        const float score = scores[n] * (scale * tile::ex2(decays.b(column) - (n % 4 < 2 ? upper : lower)));
        scores[n] = column >= wgmma_row(n) ? score : 0;  // below the diagonal the power may be infinite
      }
      wgmma_fragment(p[t / 16], scores, t);
    }
  }
}

/// The decayed scores of the thread's two rows with themselves, by a warpgroup. p has zeros there then.
__device__ __forceinline__ float2 take_own_scores(tile::ScoreFragments& p, const tile::WarpgroupScores& scores) {
  const int row = wgmma_row(0) % 8;  // one lane of the four that have a row has its own column, and that of row + 8
  const bool is_own = int(lane_index()) % 4 == row / 2, is_second = row % 2 == 1;
  const std::uint32_t others = !is_own ? 0xFFFFFFFFu : is_second ? 0x0000FFFFu : 0xFFFF0000u;
  float upper = 0, lower = 0;
#pragma unroll
  for (int k = 0; k < kChunk / 16; ++k) {
    const bool is_diagonal = k == tile::warp_in_group();
    const std::uint32_t kept = is_diagonal ? others : 0xFFFFFFFFu;
    p[k][0] &= kept, p[k][3] &= kept;
    if (is_diagonal) {
      upper = is_second ? scores[8 * k + 1] : scores[8 * k];
      lower = is_second ? scores[8 * k + 7] : scores[8 * k + 6];
    }
  }
  const int owner = int(lane_index()) / 4 * 4 + row / 2;
  return make_float2(__shfl_sync(kAllLanes, upper, owner), __shfl_sync(kAllLanes, lower, owner));
}

/// Position i adds nothing to the state. By the warp that has stored the chunk's decays.
__device__ __forceinline__ void leave_out_of_state(const ChunkDecays& decays, int i) {
  if (int(lane_index()) != i / 2) return;
  const SplitFactors two = decays.pair_to_end(i / 2 * 2);
  const std::uint32_t other = i % 2 == 0 ? 0xFFFF0000u : 0x0000FFFFu;
  reinterpret_cast<uint2*>(decays.data + 2 * kChunk)[i / 2] = make_uint2(two.upper & other, two.lower & other);
}

/// 64 columns of a warp's 16 rows in bf16, as fragments of A.
using RowFragments = std::uint32_t[4][4];

/// Loads the calling warp's rows of a tile. @param unit first_unit_of_rows()
__device__ __forceinline__ void load_rows(RowFragments& rows, const tile::PanelTile<64>& tile, int unit) {
#pragma unroll
  for (int i = 0; i < 4; ++i) ldmatrix_x4(rows[i], tile.data + tile.advance(unit, 0, i * 16));
}

/// The products of the rows of a gradient's tile with those of its partner, by a warpgroup whose rows are the positions.
/// @param to where the product of the chunk's first row goes @param rows that exist
/// @param partner the warp's rows of it
__device__ __forceinline__ void store_row_products(float* to, int rows, const RowFragments& partner,
                                                   const tile::WarpgroupOutput& O) {
  float upper = 0, lower = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* sums = O + i * 8 + half * 4;
      const float2 above = unpack(partner[i][2 * half]), below = unpack(partner[i][2 * half + 1]);
      upper += above.x * sums[0] + above.y * sums[1];
      lower += below.x * sums[2] + below.y * sums[3];
    }
  }
  const int lane = int(lane_index());
  upper = warp_sum<4>(upper);
  lower = warp_sum<4>(lower);
  if (lane % 4 == 0 && wgmma_row(0) < rows) store_global(to + wgmma_row(0), upper);
  if (lane % 4 == 0 && wgmma_row(2) < rows) store_global(to + wgmma_row(2), lower);
}

/// Writes O to a tile as put_rows() does, and adds to each of the thread's two rows its factor times the row of V.
/// @param V the warp's rows of it
__device__ __forceinline__ void put_rows_with(const tile::PanelTile<64>& tile, const tile::WarpgroupOutput& O,
                                              float2 factors, const RowFragments& V, int unit) {
  tile::WarpgroupOutput whole;
#pragma unroll
  for (int n = 0; n < 32; n += 4) {
    const float2 above = unpack(V[n / 8][n % 8 / 2]), below = unpack(V[n / 8][n % 8 / 2 + 1]);
    whole[n] = O[n] + factors.x * above.x;
    whole[n + 1] = O[n + 1] + factors.x * above.y;
    whole[n + 2] = O[n + 2] + factors.y * below.x;
    whole[n + 3] = O[n + 3] + factors.y * below.y;
  }
  tile::put_rows(tile, whole, unit);
}

}  // namespace tutorial::simple_gla
