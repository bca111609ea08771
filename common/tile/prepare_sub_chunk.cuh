#pragma once
/// @file
/// The effect of gates inside a sub-chunk of 16 positions, computed by one warp, with most of its scores on tensor
/// cores. Chapter 04's `warp_specialized` explains it. decay_sub_chunk.cuh does the same pair by pair.
///
/// A score P_ti is a sum over d of q_td k_id times all gates from i + 1 to t. Cut that product of gates at an anchor c,
/// i < c <= t: the gates from c to t go to the query and those from i + 1 to c - 1 to the key. Both parts are products
/// of numbers of at most 1, and each depends on one position alone. So the scores of all queries from c on with all
/// keys before c are a product of two matrices. Anchors at 8, 4 and 12 cover all pairs but those inside quarters of
/// four positions:
///
///     i =     0..3  4..7  8..11 12..15
///     t =  0   q                            q: in fp32, pair by pair: 40 of the 136 pairs
///          4   4     q                      4, 8, 12: by mma, the number is the anchor
///          8   8     8     q
///         12   8     8     12    q
///
/// All lanes of the warp call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/sub_chunk.hpp"
#include "common/tile/swizzled_tile.cuh"

namespace tutorial::tile {

inline constexpr int kPreparedColumns = 64;  ///< columns of Dk that a warp prepares at a time, two per lane

/// q, k and g of a sub-chunk as bulk copies load them. Rows and columns outside of the tensors are zeros; for g that
/// means gates of 1.
struct RawTiles {
  PanelTile<kPreparedColumns, kSubChunk> q;    ///< [16, 64], bf16
  PanelTile<kPreparedColumns, kSubChunk> k;    ///< [16, 64], bf16
  FloatPanels<kSubChunk, kPreparedColumns> g;  ///< [16, 64], fp32

  /// Bytes of shared memory.
  static constexpr unsigned kBytes =
      2 * PanelTile<kPreparedColumns, kSubChunk>::kPanelBytes + FloatPanels<kSubChunk, kPreparedColumns>::kBytes;

  /// @param memory kBytes in shared memory, aligned to 1024
  __device__ __forceinline__ explicit RawTiles(unsigned char* memory)
      : q{reinterpret_cast<__nv_bfloat16*>(memory)},
        k{q.data + q.kPanelElements},
        g{reinterpret_cast<float*>(k.data + k.kPanelElements)} {}
};

/// A lane's two columns of all rows.
struct RawRows {
  std::uint32_t q[kSubChunk], k[kSubChunk];
  float2 g[kSubChunk];
};

/// Loads a lane's two columns of all rows.
__device__ __forceinline__ void load_rows(RawRows& rows, const RawTiles& tiles) {
  const int column = int(lane_index()) * 2;
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    const int unit = tiles.q.unit(t, column / 8 * 8) + column % 8;
    rows.q[t] = *reinterpret_cast<const std::uint32_t*>(tiles.q.data + unit);
    rows.k[t] = *reinterpret_cast<const std::uint32_t*>(tiles.k.data + unit);
    rows.g[t] = *reinterpret_cast<const float2*>(tiles.g.data + tiles.g.place(t, column));
  }
}

/// The factors of the products at anchors, in shared memory of the warp alone: row t of a tile is that of position t.
struct AnchoredTiles {
  SwizzledTile<kPreparedColumns> halves;    ///< keys 0 to 7 and queries 8 to 15, anchored at 8
  SwizzledTile<kPreparedColumns> quarters;  ///< keys 0 to 3 and queries 4 to 7, anchored at 4; the same after 8, at 12

  static constexpr int kBytes = 2 * kSubChunk * kPreparedColumns * int(sizeof(__nv_bfloat16));

  /// @param memory kBytes in shared memory, aligned to 16
  __device__ __forceinline__ explicit AnchoredTiles(unsigned char* memory)
      : halves{reinterpret_cast<__nv_bfloat16*>(memory)}, quarters{halves.data + kSubChunk * kPreparedColumns} {}
};

/// The scores of a sub-chunk, summed over the columns so far. They start as zeros.
struct SubChunkScores {
  static constexpr int kPairs = 10;  ///< of a quarter
  float pairs[48];                   ///< the lane's part of each pair in a quarter, 4 x 10; the rest remains 0
  float halves[4], quarters[4];      ///< accumulators of the products at 8, and at 4 and 12; the upper two are unused
};

namespace sub_chunk_rows {

/// x *= y
__device__ __forceinline__ void multiply(float2& x, float2 y) {
  x.x *= y.x;
  x.y *= y.y;
}

/// Stores a lane's two columns of a row.
__device__ __forceinline__ void store(const SwizzledTile<kPreparedColumns>& tile, int row, float2 x) {
  const int column = int(lane_index()) * 2;
  *reinterpret_cast<std::uint32_t*>(tile.data + tile.unit(row, column / 8 * 8) + column % 8) = pack(x.x, x.y);
}

/// Adds the product of eight queries and eight keys to the lower two of the accumulators.
/// @param q,k the row of the tile that the lane names to ldmatrix: that of the query, of the key, number lane % 8
__device__ __forceinline__ void add_scores(float (&scores)[4], const SwizzledTile<kPreparedColumns>& tile, int q,
                                           int k) {
  const int lane = int(lane_index());
  const int unit = tile.unit(lane < 16 ? q : k, lane / 8 % 2 * 8);
#pragma unroll
  for (int d = 0; d < kPreparedColumns; d += 16) {
    std::uint32_t x[4];  // queries of columns d to d + 7 and d + 8 to d + 15, then keys
    ldmatrix_x4(x, tile.data + tile.advance(unit, 0, d));
    mma_m16n8k16(scores, {0, x[0], 0, x[1]}, {x[2], x[3]});
  }
}

}  // namespace sub_chunk_rows

/// Prepares a sub-chunk's 64 columns.
/// @param tiles overwritten
/// @param out gets out.query(t, q_t decayed from the start), out.key(i, k_i decayed to the end), out.decay(of all rows)
template <class Out>
__device__ __forceinline__ void prepare_columns(const RawRows& rows, const AnchoredTiles& tiles, const Out& out,
                                                SubChunkScores& scores) {
  using namespace sub_chunk_rows;
  float2 keys[kSubChunk];                  // decayed so far
  float2 first_half{1, 1}, quarter{1, 1};  // decays of positions 0 to 7 and of the quarter before
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float2 decay{1, 1};  // of the quarter, up to t
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = 4 * j + i;
      const float2 a{gate(rows.g[t].x), gate(rows.g[t].y)};
      float2 q = unpack(rows.q[t]);
      keys[t] = unpack(rows.k[t]);
      multiply(decay, a);
#pragma unroll
      for (int m = 0; m <= i; ++m) {
        float2& k = keys[4 * j + m];
        if (m < i) multiply(k, a);
        float& pair = scores.pairs[SubChunkScores::kPairs * j + i * (i + 1) / 2 + m];
        pair += q.x * k.x;
        pair += q.y * k.y;
      }
      multiply(q, decay);
      if (j % 2 == 1) {
        store(tiles.quarters, t, q);
        multiply(q, quarter);
      }
      if (j >= 2) {
        store(tiles.halves, t, q);
        multiply(q, first_half);
      }
      out.query(t, q);
    }
    if (j % 2 == 0) {
#pragma unroll
      for (int i = 4 * j; i < 4 * j + 4; ++i) store(tiles.quarters, i, keys[i]);
      quarter = decay;
    } else {
#pragma unroll
      for (int i = 4 * (j - 1); i < 4 * j; ++i) multiply(keys[i], decay);
      multiply(decay, quarter);  // of the half
      if (j == 1) {
#pragma unroll
        for (int i = 0; i < 8; ++i) store(tiles.halves, i, keys[i]);
        first_half = decay;
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) multiply(keys[i], decay);
        multiply(first_half, decay);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) out.key(i, keys[i]);
  out.decay(first_half);
  __syncwarp();
  const int row = int(lane_index()) % 8, in_quarters = row % 4 + row / 4 * 8;
  add_scores(scores.halves, tiles.halves, row + 8, row);
  add_scores(scores.quarters, tiles.quarters, in_quarters + 4, in_quarters);
  __syncwarp();
}

/// Adds up over the lanes and writes the scores in bf16, for products of warpgroups. Elements above the diagonal are
/// not written, because they have been set to zero before.
/// @param P row t, column first_column + i is P_ti
__device__ __forceinline__ void store_scores(const PanelTile<64, kSubChunk>& P, int first_column,
                                             const SubChunkScores& scores) {
  const int lane = int(lane_index()), row = lane / 4, column = lane % 4 * 2;
  const auto place = [&](int t, int i) { return P.data + P.unit(t, first_column + i / 8 * 8) + i % 8; };
  store_for_copies(reinterpret_cast<std::uint32_t*>(place(row + 8, column)), pack(scores.halves[2], scores.halves[3]));
  if (row / 4 == column / 4) {
    const int t = row % 4 + row / 4 * 8 + 4, i = column % 4 + column / 4 * 8;
    store_for_copies(reinterpret_cast<std::uint32_t*>(place(t, i)), pack(scores.quarters[2], scores.quarters[3]));
  }
#pragma unroll
  for (int n = 0; n < 48; n += kSubChunk) {
    float parts[kSubChunk];
#pragma unroll
    for (int i = 0; i < kSubChunk; ++i) parts[i] = scores.pairs[n + i];
    const float score = sum_over_lanes<kSubChunk / 2>(parts, lane);
    const int number = n + lane / 2, quarter = number / SubChunkScores::kPairs, m = number % SubChunkScores::kPairs;
    const int t = (m >= 1) + (m >= 3) + (m >= 6), i = m - t * (t + 1) / 2;
    if (lane % 2 == 0 && quarter < 4) {
      store_for_copies(place(quarter * 4 + t, quarter * 4 + i), __float2bfloat16(score));
    }
  }
}

}  // namespace tutorial::tile
