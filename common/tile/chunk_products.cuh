#pragma once
/// @file
/// The four products of a chunk on tensor cores:
///
///     P   = (Q K^T) . M        masked_scores(): [C, C], M[t][i] = 1 if i <= t, else 0
///     O   = Q S                add_from_state(): what the chunks before have left
///     O  += P V                add_from_scores(): what the chunk itself adds; add_from_transposed_scores() for P^T
///     S  += K^T V              update_state()
///
/// Q, K [C, Dk] and V [C, Dv] are bf16 tiles in shared memory (swizzled_tile.cuh). The block's warps divide the columns
/// of V, O and S among them: warp w has kWarpColumns columns, and no other warp ever needs its part of S. So S stays in
/// that warp's registers, as accumulators in fp32, from the first chunk to the last. It is kept transposed, S^T [Dv,
/// Dk]: the accumulators of S^T += V^T K, rounded to bf16, are then the B fragment (that of the right factor) of O += Q
/// S, and the state never passes through shared memory. common/device/mma.cuh draws both layouts:
///
///     accumulator of S^T: lane (g, p) holds S^T[g][p, p+1]        g = lane / 4, p = 2 (lane % 4)
///     B fragment of S:    lane (g, p) holds S[p, p+1][g]          the same two numbers
///
/// All warps need all of P. Each computes some 16 x 16 tiles of it and stores them to shared memory in bf16. Tiles
/// above the diagonal are neither computed nor read.
///
/// Shared memory that a chunk reads at Dk = Dv = 128, in KB: scores 88, Q S 64, P V 36, K^T V 80. Reading them takes
/// about as long as the chunk's 1344 mma. Fewer warps with more columns read less, so there are four with 32 columns,
/// not eight with 16.
///
/// All lanes of a warp call each function, in blocks of kThreads. Tiles are aligned to 16 bytes. A barrier must stand
/// between filling a tile and a function that reads it.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::tile {

/// An epilogue of masked_scores() that does nothing.
struct NoEpilogue {
  /// Called among the products of each 16 of Dk, with their number.
  __device__ void step(int) {}
  /// The score from the product of query t and key i. The result is unused if i > t.
  __device__ float score(int, int, float product) { return product; }
  /// Called by each lane for each row t that it holds a part of, in each tile of P: (t, first column of the tile, sum
  /// of the lane's scores).
  __device__ void row(int, int, float) {}
};

/// P = (Q K^T) . M in bf16, by all warps of the block. The caller has a barrier before it (Q and K are there, and no
/// warp reads P any more) and one after it (P is there).
///
/// P has ten tiles of 16 x 16 on and below the diagonal. A warp takes two and a half of them:
///
///       0                        tile 0, 4, left half of 8:   warp 0
///       1  2                          1, 5, left half of 9:   warp 1
///       3  4  5                       2, 6, right half of 8:  warp 2
///       6  7  8  9                    3, 7, right half of 9:  warp 3
///
/// @param epilogue what else is computed on the way; NoEpilogue documents its functions
template <class Shape, class Epilogue = NoEpilogue>
__device__ __forceinline__ void masked_scores(const typename Shape::ScoreTile& P, const typename Shape::KeyTile& Q,
                                              const typename Shape::KeyTile& K, Epilogue&& epilogue = {}) {
  const int lane = fresh_lane(), warp = warp_index();
  int row[3], column[3], q_unit[3], k_unit[3];
  float scores[3][2][4] = {};  // of the third tile only the first half
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const int tile = i < 2 ? warp + 4 * i : 8 + warp % 2, band = (tile >= 1) + (tile >= 3) + (tile >= 6);
    row[i] = band * 16;
    column[i] = (tile - band * (band + 1) / 2) * 16 + (i < 2 ? 0 : warp / 2 * 8);
    q_unit[i] = Q.unit(row[i] + lane % 16, lane / 16 * 8);
    k_unit[i] = i < 2 ? K.unit(column[i] + lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8)
                      : K.unit(column[i] + lane % 8, lane / 8 % 2 * 8);
  }
#pragma unroll
  for (int d = 0; d < Shape::kDk; d += 16) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      std::uint32_t q[4];
      ldmatrix_x4(q, Q.data + Q.advance(q_unit[i], 0, d));
      if (i < 2) {
        std::uint32_t k[4];
        ldmatrix_x4(k, K.data + K.advance(k_unit[i], 0, d));
        mma_m16n8k16(scores[i][0], q, {k[0], k[1]});
        mma_m16n8k16(scores[i][1], q, {k[2], k[3]});
      } else {
        std::uint32_t k[2];
        ldmatrix_x2(k, K.data + K.advance(k_unit[i], 0, d));
        mma_m16n8k16(scores[i][0], q, k);
      }
    }
    epilogue.step(d / 16);
  }
#pragma unroll
  for (int i = 0; i < 3; ++i) {
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const int t = row[i] + lane / 4 + lower * 8;
      float sum = 0;
#pragma unroll
      for (int half = 0; half < (i < 2 ? 2 : 1); ++half) {
        const int unit = column[i] + half * 8, p = unit + lane % 4 * 2;
        const float left = epilogue.score(t, p, scores[i][half][2 * lower]), first = p <= t ? left : 0.0f;
        const float right = epilogue.score(t, p + 1, scores[i][half][2 * lower + 1]),
                    second = p + 1 <= t ? right : 0.0f;
        *reinterpret_cast<std::uint32_t*>(P.data + P.unit(t, unit) + lane % 4 * 2) = pack(first, second);
        sum += first + second;
      }
      epilogue.row(t, column[i], sum);
    }
  }
}

/// O += Q S, the warp's columns. The product reads S rounded to bf16.
template <class Shape>
__device__ __forceinline__ void add_from_state(typename Shape::Output& O, const typename Shape::KeyTile& Q,
                                               const typename Shape::State& S) {
  const int lane = fresh_lane();
  const int q_unit = Q.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    std::uint32_t s[Shape::kWarpColumns / 8][2];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      const auto& tiles = S[j / 2];
      s[j][0] = pack(tiles[2 * d][j % 2 * 2], tiles[2 * d][j % 2 * 2 + 1]);
      s[j][1] = pack(tiles[2 * d + 1][j % 2 * 2], tiles[2 * d + 1][j % 2 * 2 + 1]);
    }
#pragma unroll
    for (int t = 0; t < kChunk / 16; ++t) {
      std::uint32_t q[4];
      ldmatrix_x4(q, Q.data + Q.advance(q_unit, t * 16, d * 16));
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 8; ++j) mma_m16n8k16(O[t][j], q, s[j]);
    }
  }
}

/// O += P V, the warp's columns.
template <class Shape>
__device__ __forceinline__ void add_from_scores(typename Shape::Output& O, const typename Shape::ScoreTile& P,
                                                const typename Shape::ValueTile& V) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  const int p_unit = P.unit(lane % 16, lane / 16 * 8);
  const int v_unit = V.unit(lane % 16, first_column + lane / 16 * 8);
#pragma unroll
  for (int i = 0; i < kChunk / 16; ++i) {
    std::uint32_t v[Shape::kWarpColumns / 16][4];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      ldmatrix_x4_trans(v[j], V.data + V.advance(v_unit, i * 16, j * 16));
    }
#pragma unroll
    for (int t = i; t < kChunk / 16; ++t) {  // below the diagonal, and on it
      std::uint32_t p[4];
      ldmatrix_x4(p, P.data + P.advance(p_unit, t * 16, i * 16));
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
        mma_m16n8k16(O[t][2 * j], p, {v[j][0], v[j][1]});
        mma_m16n8k16(O[t][2 * j + 1], p, {v[j][2], v[j][3]});
      }
    }
  }
}

/// O += P^T V, the warp's columns, where the stored P is already masked: row t of O gets row i of V for i >= t.
template <class Shape>
__device__ __forceinline__ void add_from_transposed_scores(typename Shape::Output& O,
                                                           const typename Shape::ScoreTile& P,
                                                           const typename Shape::ValueTile& V) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  const int p_unit = P.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
  const int v_unit = V.unit(lane % 16, first_column + lane / 16 * 8);
#pragma unroll
  for (int i = 0; i < kChunk / 16; ++i) {
    std::uint32_t v[Shape::kWarpColumns / 16][4];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      ldmatrix_x4_trans(v[j], V.data + V.advance(v_unit, i * 16, j * 16));
    }
#pragma unroll
    for (int t = 0; t <= i; ++t) {
      std::uint32_t p[4];
      ldmatrix_x4_trans(p, P.data + P.advance(p_unit, i * 16, t * 16));
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
        mma_m16n8k16(O[t][2 * j], p, {v[j][0], v[j][1]});
        mma_m16n8k16(O[t][2 * j + 1], p, {v[j][2], v[j][3]});
      }
    }
  }
}

/// S += K^T V, the warp's columns; in the registers it is S^T += V^T K.
template <class Shape>
__device__ __forceinline__ void update_state(typename Shape::State& S, const typename Shape::KeyTile& K,
                                             const typename Shape::ValueTile& V) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  const int k_unit = K.unit(lane % 16, lane / 16 * 8);
  const int v_unit = V.unit(lane / 16 * 8 + lane % 8, first_column + lane / 8 % 2 * 8);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) {
    std::uint32_t v[Shape::kWarpColumns / 16][4];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      ldmatrix_x4_trans(v[j], V.data + V.advance(v_unit, i, j * 16));
    }
#pragma unroll
    for (int d = 0; d < Shape::kDk / 16; ++d) {
      std::uint32_t k[4];
      ldmatrix_x4_trans(k, K.data + K.advance(k_unit, i, d * 16));
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
        mma_m16n8k16(S[j][2 * d], v[j], {k[0], k[1]});
        mma_m16n8k16(S[j][2 * d + 1], v[j], {k[2], k[3]});
      }
    }
  }
}

}  // namespace tutorial::tile
