#pragma once
/// @file
/// The effect of gates inside a sub-chunk of 16 positions, for P and A at once: one warp computes its rows and its own
/// scores, with an anchor for every pair.
///
/// A score of t and i < t contains the gates from i + 1 to t. Cut their product at an anchor: the gates from the anchor
/// on go to the row of t, those before it to the key. Both parts are products of gates, at most 1, and each depends on
/// one position alone. The anchor of a pair is the multiple of 8 in i + 1 ... t if there is one, else that of 4, else
/// that of 2, else t itself. So at level n (1, 2, 4, 8) pairs lie in neighbouring groups of n positions:
///
///     t & n        the position's row takes part as query: decayed from its group's start
///     not t & n    as key: decayed to its group's end, which is where the next group starts
///
///     P_ti    i = 0 1 2 3 4 5 6 7 ...
///     t = 0       =                        =: no gate lies between, so P_tt = q_t . k_t, in fp32
///         1       1 =                      1, 2, 4, 8: the level
///         2       2 2 =
///         3       2 2 1 =
///         4       4 4 4 4 =
///         5       4 4 4 4 1 =
///         6       4 4 4 4 2 2 =
///         7       4 4 4 4 2 2 1 =
///         8..15   8 8 8 8 8 8 8 8 ...      and to the right of it the same once more
///
/// So each level has 8 queries q, 8 queries k and 8 keys: one mma [16 x 16] [16 x 8] for 16 columns of Dk. From one
/// level to the next, the queries are multiplied by the decay of the group before theirs, and the keys by that of the
/// group behind. After the last level all rows are those of the sub-chunk: queries decayed from its start, keys to its
/// end. Until then, the levels use the memory where these rows will lie.
///
/// Chapter 04's score_levels.cuh has the same anchors for P alone, for rows that bulk copies bring. All lanes of the
/// warp call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::kda {

inline constexpr int kSlice = 64;  ///< columns of Dk that a warp prepares at a time, two per lane

/// A lane's two columns of all rows.
struct RawRows {
  std::uint32_t q[tile::kSubChunk];  ///< two bf16 of each row of q
  std::uint32_t k[tile::kSubChunk];  ///< of k
  float2 g[tile::kSubChunk];         ///< gates
};

/// Where the rows of a sub-chunk go: 64 columns of them.
template <int kDk>
struct SubChunkRows {
  tile::PanelTile<kDk> Q, K, K_end;  ///< of queries q, of queries k, of keys
  int first_row, first_column;
};

/// The scores of a sub-chunk, summed over the columns so far. They start as zeros.
struct OwnScores {
  static constexpr int kLevels = 4;
  float levels[kLevels][4];  ///< accumulators: rows 0 to 7 queries q, 8 to 15 queries k, columns keys
  float diagonal;            ///< q_t . k_t of position t = lane / 2
};

namespace own_scores {

inline constexpr int kHalf = tile::kSubChunk / 2;  ///< queries, and keys, of a level

/// x *= y
__device__ __forceinline__ void multiply(float2& x, float2 y) {
  x.x *= y.x;
  x.y *= y.y;
}

/// Stores a lane's two columns of row `row` of the sub-chunk.
template <int kDk>
__device__ __forceinline__ void store(const tile::PanelTile<kDk>& tile, const SubChunkRows<kDk>& to, int row,
                                      float2 x) {
  const int column = to.first_column + int(lane_index()) * 2;
  const int unit = tile.unit(to.first_row + row, column / 8 * 8) + column % 8;
  *reinterpret_cast<std::uint32_t*>(tile.data + unit) = pack(x.x, x.y);
}

/// Multiplies a level's queries by its keys.
/// @param row the first of its eight in each tile
template <int kDk>
__device__ __forceinline__ void add_products(float (&sums)[4], const SubChunkRows<kDk>& from, int row) {
  const int lane = int(lane_index());
  row += from.first_row + lane % 8;
  const __nv_bfloat16* queries = lane / 8 % 2 == 0 ? from.Q.data : from.K.data;
  const int query = from.Q.unit(row, from.first_column + lane / 16 * 8),
            key = from.K_end.unit(row, from.first_column + lane / 8 * 8);
#pragma unroll
  for (int d = 0; d < kSlice; d += 32) {
    std::uint32_t k[4];
    ldmatrix_x4(k, from.K_end.data + from.K_end.advance(key, 0, d));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t q[4];
      ldmatrix_x4(q, queries + from.Q.advance(query, 0, d + half * 16));
      mma_m16n8k16(sums, q, {k[2 * half], k[2 * half + 1]});
    }
  }
}

}  // namespace own_scores

/// Decays a sub-chunk's rows of 64 columns, stores them, and adds their part of its scores.
/// @return the decay of all positions, of the lane's columns
template <int kDk>
__device__ __forceinline__ float2 decay_rows(const RawRows& rows, const SubChunkRows<kDk>& to, OwnScores& scores) {
  using namespace own_scores;
  using tile::kSubChunk;
  float2 q[kSubChunk], k[kSubChunk], keys[kSubChunk];
  float2 decay[kSubChunk];  // of the group that begins at a position
  float same[kSubChunk];
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    decay[t] = {tile::gate(rows.g[t].x), tile::gate(rows.g[t].y)};
    q[t] = unpack(rows.q[t]);
    keys[t] = k[t] = unpack(rows.k[t]);
    same[t] = q[t].x * k[t].x + q[t].y * k[t].y;
    multiply(q[t], decay[t]);
    multiply(k[t], decay[t]);
  }
  scores.diagonal += tile::sum_over_lanes<kHalf>(same, int(lane_index()));
#pragma unroll
  for (int level = 0; level < OwnScores::kLevels; ++level) {
    const int n = 1 << level, first = level % 2 * kHalf;
#pragma unroll
    for (int t = 0; t < kSubChunk; ++t) {
      const int row = first + t / (2 * n) * n + t % n, group = t - t % n;
      if (t & n) {
        store(to.Q, to, row, q[t]);
        store(to.K, to, row, k[t]);
        multiply(q[t], decay[group - n]);
        multiply(k[t], decay[group - n]);
      } else {
        store(to.K_end, to, row, keys[t]);
        multiply(keys[t], decay[group + n]);
      }
    }
#pragma unroll
    for (int t = 0; t < kSubChunk; t += 2 * n) multiply(decay[t], decay[t + n]);
    if (level % 2 == 0) continue;
    __syncwarp();  // the rows of two levels are there
    add_products(scores.levels[level - 1], to, 0);
    add_products(scores.levels[level], to, kHalf);
    __syncwarp();  // all lanes have read them
  }
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    store(to.Q, to, t, q[t]);
    store(to.K, to, t, k[t]);
    store(to.K_end, to, t, keys[t]);
  }
  return decay[0];
}

/// Writes the scores in fp32: all elements below the diagonal, and the diagonal of P. Others are not written.
/// @param P,A [16, 16] in shared memory: P_ti in row t, column i; A with k in the place of q
__device__ __forceinline__ void store_own_scores(float* P, float* A, const OwnScores& scores) {
  const int lane = int(lane_index()), query = lane / 4;
#pragma unroll
  for (int level = 0; level < OwnScores::kLevels; ++level) {
    const int n = 1 << level;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int key = lane % 4 * 2 + e, t = 2 * query - query % n + n, i = 2 * key - key % n;
      if (query / n != key / n) continue;  // not in neighbouring groups
      P[t * tile::kSubChunk + i] = scores.levels[level][e];
      A[t * tile::kSubChunk + i] = scores.levels[level][2 + e];
    }
  }
  if (lane % 2 == 0) P[lane / 2 * (tile::kSubChunk + 1)] = scores.diagonal;
}

}  // namespace tutorial::kda
