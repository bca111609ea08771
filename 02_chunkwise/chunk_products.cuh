#pragma once
/// @file
/// The four products of a chunk on tensor cores, as the stages 6 to 8 do them:
///
///     P   = (Q K^T) . M        masked_scores(): [C, C], M[t][i] = 1 where i <= t, else 0
///     O   = Q S                add_from_state(): what the chunks before have left
///     O  += P V                add_from_scores(): what the chunk itself adds
///     S  += K^T V              update_state()
///
/// Q, K [C, Dk] and V [C, Dv] are bf16 tiles in shared memory (swizzled_tile.cuh). The block's warps share the
/// columns of V, O and S: warp w has kWarpColumns of them, and nobody else ever needs its part of S. So S stays in
/// that warp's registers, as accumulators in fp32, from the first chunk to the last. It is kept transposed, S^T [Dv,
/// Dk]: then the accumulators of S^T += V^T K, rounded to bf16, are just what O += Q S wants for its B fragment (that
/// of the right factor), and the state never passes through shared memory:
///
///     accumulator of S^T: lane (g, p) holds S^T[g][p, p+1]        g = lane / 4, p = 2 (lane % 4)
///     B fragment of S:    lane (g, p) holds S[p, p+1][g]          the same two numbers
///
/// P is needed by all warps whole: each computes some 16 x 16 tiles of it and leaves them in shared memory in bf16.
/// Tiles above the diagonal are neither computed nor read.
///
/// Shared memory that a chunk reads at Dk = Dv = 128, in KB: scores 88, Q S 64, P V 36, K^T V 80; that is about as
/// long as its 1344 mma take. Fewer, wider warps read less: four with 32 columns, not eight with 16.
///
/// All lanes of a warp call each function, in blocks of kThreads; tiles are aligned to 16 bytes and, where a function
/// reads one, filled: a barrier stands between.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/swizzled_tile.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/opaque.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"

namespace tutorial::linear_attention {

inline constexpr int kChunk = 64;  ///< positions of a chunk, C
inline constexpr int kWarps = 4;
inline constexpr int kThreads = 32 * kWarps;

/// How a block holds its part of a head: all of Dk <= kDk, and kDv columns of Dv.
template <int kDk_, int kDv_>
struct ChunkShape {
  static constexpr int kDk = kDk_;
  static constexpr int kDv = kDv_;
  static constexpr int kWarpColumns = kDv / kWarps;
  static_assert(kWarpColumns % 16 == 0);

  using KeyTile = SwizzledTile<kDk>;       // Q or K, [C, Dk]
  using ValueTile = SwizzledTile<kDv>;     // V or O, [C, Dv]
  using ScoreTile = SwizzledTile<kChunk>;  // P, [C, C]

  using State = float[kWarpColumns / 16][kDk / 8][4];      // accumulators of S^T [kWarpColumns, kDk]
  using Output = float[kChunk / 16][kWarpColumns / 8][4];  // accumulators of O [C, kWarpColumns]
};

/// The lane. What follows from it is not kept in registers from chunk to chunk: beside the state there are none left.
__device__ __forceinline__ int fresh_lane() {
  return opaque(int(lane_index()));
}

/// The warp's number in its block.
__device__ __forceinline__ int warp_index() {
  return opaque(int(threadIdx.x)) / 32;
}

/// For masked_scores(): nothing else.
struct NothingElse {
  /// Nothing at each step.
  __device__ void step(int) {}
  /// A score as it is.
  __device__ float score(int, int, float product) { return product; }
  /// Nothing at a row.
  __device__ void row(int, int, float) {}
};

/// P = (Q K^T) . M in bf16, by all warps of the block: barriers before (Q and K are there, nobody reads P any more) and
/// after (P is there) are the caller's.
///
/// P has ten tiles of 16 x 16 on and below the diagonal. A warp takes two and a half of them:
///
///       0                        tile 0, 4, left half of 8:   warp 0
///       1  2                          1, 5, left half of 9:   warp 1
///       3  4  5                       2, 6, right half of 8:  warp 2
///       6  7  8  9                    3, 7, right half of 9:  warp 3
///
/// @param also what else is done on the way: also.step(d / 16) among the products of each 16 of Dk;
/// also.score(t, i, product) makes a score of a product, of no use where i > t; and also.row(t, column, sum) is called
/// by each lane for each row t of a tile that it has something of; the tile begins in `column`
template <class Shape, class Also>
__device__ __forceinline__ void masked_scores(const typename Shape::ScoreTile& P, const typename Shape::KeyTile& Q,
                                              const typename Shape::KeyTile& K, Also&& also) {
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
      ldmatrix_x4(q, Q.data + Q.moved(q_unit[i], 0, d));
      if (i < 2) {
        std::uint32_t k[4];
        ldmatrix_x4(k, K.data + K.moved(k_unit[i], 0, d));
        mma_m16n8k16(scores[i][0], q, {k[0], k[1]});
        mma_m16n8k16(scores[i][1], q, {k[2], k[3]});
      } else {
        std::uint32_t k[2];
        ldmatrix_x2(k, K.data + K.moved(k_unit[i], 0, d));
        mma_m16n8k16(scores[i][0], q, k);
      }
    }
    also.step(d / 16);
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
        const float left = also.score(t, p, scores[i][half][2 * lower]), first = p <= t ? left : 0.0f;
        const float right = also.score(t, p + 1, scores[i][half][2 * lower + 1]), second = p + 1 <= t ? right : 0.0f;
        *reinterpret_cast<std::uint32_t*>(P.data + P.unit(t, unit) + lane % 4 * 2) = pack(first, second);
        sum += first + second;
      }
      also.row(t, column[i], sum);
    }
  }
}

/// O += Q S, the warp's columns. S is rounded to bf16 on the way.
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
      ldmatrix_x4(q, Q.data + Q.moved(q_unit, t * 16, d * 16));
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
      ldmatrix_x4_trans(v[j], V.data + V.moved(v_unit, i * 16, j * 16));
    }
#pragma unroll
    for (int t = i; t < kChunk / 16; ++t) {  // below the diagonal, and on it
      std::uint32_t p[4];
      ldmatrix_x4(p, P.data + P.moved(p_unit, t * 16, i * 16));
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
      ldmatrix_x4_trans(v[j], V.data + V.moved(v_unit, i, j * 16));
    }
#pragma unroll
    for (int d = 0; d < Shape::kDk / 16; ++d) {
      std::uint32_t k[4];
      ldmatrix_x4_trans(k, K.data + K.moved(k_unit, i, d * 16));
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
        mma_m16n8k16(S[j][2 * d], v[j], {k[0], k[1]});
        mma_m16n8k16(S[j][2 * d + 1], v[j], {k[2], k[3]});
      }
    }
  }
}

/// Calls f(element, address) for each element of the state that the lane holds and that exists, with its place in
/// global memory.
/// @param state the first row's element of the block's first column
/// @param stride_row elements from one row of the state to the next; rows need no alignment
/// @param Dk,columns rows of the state and columns of the block that exist: multiples of 16
template <class Shape, class Float, class F>
__device__ __forceinline__ void for_each_element(typename Shape::State& S, Float* state, std::int64_t stride_row,
                                                 int Dk, int columns, F f) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  state += lane % 4 * 2 * stride_row + first_column + lane / 4;
#pragma unroll
  for (int d = 0; d < Shape::kDk; d += 8) {
    if (d < Dk) {
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns; j += 8) {
        if (first_column + j < columns) {
          f(S[j / 16][d / 8][j / 8 % 2 * 2], state + j);
          f(S[j / 16][d / 8][j / 8 % 2 * 2 + 1], state + stride_row + j);
        }
      }
    }
    state += 8 * stride_row;
  }
}

/// S = the block's columns of a state in fp32, and zeros where there is nothing; see for_each_element().
/// @param state null: all zeros
template <class Shape>
__device__ __forceinline__ void load_state(typename Shape::State& S, const float* state, std::int64_t stride_row,
                                           int Dk, int columns) {
#pragma unroll
  for (auto& tiles : S) {
#pragma unroll
    for (auto& tile : tiles) {
#pragma unroll
      for (float& element : tile) element = 0;
    }
  }
  if (state == nullptr) return;
  for_each_element<Shape>(S, state, stride_row, Dk, columns,
                          [](float& element, const float* address) { element = load_global(address); });
}

/// Writes the block's columns of the state; see for_each_element().
template <class Shape>
__device__ __forceinline__ void store_state(float* state, typename Shape::State& S, std::int64_t stride_row, int Dk,
                                            int columns) {
  for_each_element<Shape>(S, state, stride_row, Dk, columns,
                          [](float& element, float* address) { store_global(address, element); });
}

/// Writes the warp's columns of a tile to global memory in whole units of 16 bytes. The warp has put them there by
/// itself.
/// @param o the tile's first row, the block's first column; rows are stride_l elements apart
/// @param stride_l a multiple of 8, and o aligned to 16 bytes
/// @param rows,columns how many there are of the chunk's and of the block's; columns is a multiple of 8
template <class Shape>
__device__ __forceinline__ void store_warp_columns(__nv_bfloat16* o, std::int64_t stride_l, int rows, int columns,
                                                   const typename Shape::ValueTile& V) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  __syncwarp();
  constexpr int kUnits = Shape::kWarpColumns / 8;  // of a row
  constexpr int kStep = 32 / kUnits;               // rows at a time; 8 lanes take 8 rows, which lie in different places
  const int first = lane / 8 / kUnits * 8 + lane % 8, column = first_column + lane / 8 % kUnits * 8;
  const int mine = V.unit(first, column);
  uint4 units[kChunk / kStep];
#pragma unroll
  for (int i = 0; i < kChunk / kStep; ++i)
    units[i] = *reinterpret_cast<const uint4*>(V.data + V.moved(mine, i * kStep, 0));
  o += first * stride_l + column;
  if (column >= columns) rows = 0;
#pragma unroll
  for (int i = 0; i < kChunk / kStep; ++i) {
    if (first + i * kStep < rows) store_global(reinterpret_cast<uint4*>(o), units[i]);
    o += kStep * stride_l;
  }
}

/// Writes O, each row times a factor, to global memory. It is put together in the warp's columns of V, which are
/// overwritten: nobody else reads them, and O has their shape. See store_warp_columns().
/// @param factor factor(i) is that of row 8 i + lane / 4
template <class Shape, class Factor>
__device__ __forceinline__ void store_output(__nv_bfloat16* o, std::int64_t stride_l, int rows, int columns,
                                             const typename Shape::Output& O, const typename Shape::ValueTile& V,
                                             Factor factor) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  __syncwarp();
  const int corner = V.unit(lane / 4, first_column);
#pragma unroll
  for (int t = 0; t < kChunk / 8; ++t) {
    const float times = factor(t);
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      const float* two = &O[t / 2][j][t % 2 * 2];
      *reinterpret_cast<std::uint32_t*>(V.data + V.moved(corner, t * 8, j * 8) + lane % 4 * 2) =
          pack(times * two[0], times * two[1]);
    }
  }
  store_warp_columns<Shape>(o, stride_l, rows, columns, V);
}

}  // namespace tutorial::linear_attention
