#pragma once
/// @file
/// The scores of a chunk on tensor cores: P = (Q K^T) . M, [C, C], M[t][i] = 1 if i <= t, else 0.
///
/// All warps need all of P. Each computes some 16 x 16 tiles of it and stores them to shared memory in bf16. Tiles
/// above the diagonal are neither computed nor read.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_threads.cuh"

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

/// Another epilogue, but the scores of positions with themselves go to memory without it, and P has zeros there.
template <class Epilogue>
struct OffDiagonal : Epilogue {
  float* own;  ///< [C] in shared memory: products times Epilogue::scale

  /// As NoEpilogue's.
  __device__ float score(int t, int i, float product) {
    if (t != i) return Epilogue::score(t, i, product);
    own[t] = Epilogue::scale * product;
    return 0;
  }
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

}  // namespace tutorial::tile
