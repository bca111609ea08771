#pragma once
/// @file
/// What the stages from `five_steps` to `intra_fused` do with a sub-chunk of 16 positions on the chip.
///
/// The products are chapter 02's with 16 positions: a block of four warps has kDk rows and 64 columns of the state,
/// each warp 16 of the columns, transposed, as accumulators S^T [16, kDk] in fp32 (common/tile/chunk_products.cuh says
/// why). A sub-chunk is one fragment high: a product with it is a row of mma, without a loop over positions. The caller
/// places the barriers.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/clamped_gate.cuh"
#include "04_fused_chunk/gla/intermediates.hpp"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/swizzled_tile.cuh"

namespace tutorial::fused_gla {

using tile::kThreads;
using tile::SwizzledTile;

static_assert(kSubChunk == 16, "a sub-chunk is one fragment high, and its 120 pairs are dealt to one block's threads");

using Output = float[2][4];  ///< accumulators of the warp's 16 columns of a sub-chunk's O

/// A sub-chunk's b, fp32. Rows of kDk are padded by 4, so that 8 rows at a time lie in different banks.
template <int kDk>
struct SumTile {
  static constexpr int kStride = kDk + 4;
  static constexpr int kElements = kSubChunk * kStride;

  float* data;  ///< aligned to 16 bytes

  /// The address of an element.
  __device__ __forceinline__ float* at(int row, int column) const { return data + row * kStride + column; }
  /// Four elements from one on.
  __device__ __forceinline__ float4& four(int row, int d) const { return *reinterpret_cast<float4*>(at(row, d)); }
};

/// P [16, 16] bf16. Rows are 48 bytes apart: for ldmatrix they lie in different banks.
struct ScoreTile {
  static constexpr int kStride = 24;
  static constexpr int kElements = kSubChunk * kStride;

  __nv_bfloat16* data;  ///< aligned to 16 bytes

  /// The address of an element.
  __device__ __forceinline__ __nv_bfloat16* at(int row, int column) const { return data + row * kStride + column; }
};

/// A sub-chunk.
struct SubChunk {
  int b, h, t, rows;  ///< t: its first position
};

/// That of a block (x, sub-chunk, head).
__device__ __forceinline__ SubChunk block_sub_chunk(const Bf16Arguments& a) {
  const int head = int(blockIdx.z), t = int(blockIdx.y) * kSubChunk;
  return {head / a.H, head % a.H, t, min(kSubChunk, a.L - t)};
}

/// A thread's column of a sub-chunk: `rows` elements, stride_l apart, and zeros below them. All loads are in flight at
/// once.
template <class T>
__device__ __forceinline__ void load_column(float (&column)[kSubChunk], const T* first, std::int64_t stride_l,
                                            int rows) {
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) column[i] = i < rows ? float(load_global(first + i * stride_l)) : 0.0f;
}

/// tile = the first `rows` rows and `columns` columns of a sub-chunk; the rest becomes zeros. All threads of the block.
/// @param columns a multiple of 8; rows begin at multiples of 16 bytes
template <int kColumns>
__device__ __forceinline__ void load_rows(const SwizzledTile<kColumns>& tile, const __nv_bfloat16* first_row,
                                          std::int64_t stride_l, int rows, int columns) {
  constexpr int kUnits = kColumns / 8;  // of 16 bytes, one per thread
#pragma unroll
  for (int i = int(threadIdx.x); i < kSubChunk * kUnits; i += kThreads) {
    const int row = i / kUnits, column = i % kUnits * 8;
    uint4 unit{};
    if (row < rows && column < columns) {
      unit = load_global(reinterpret_cast<const uint4*>(first_row + row * stride_l + column));
    }
    *reinterpret_cast<uint4*>(tile.data + tile.unit(row, column)) = unit;
  }
}

/// The same for b. Missing elements become smaller than any sum, so that no decay from an existing position to a
/// missing one is above 1. An infinite decay would turn the zeros of q into NaN.
template <int kColumns>
__device__ __forceinline__ void load_rows(const SumTile<kColumns>& tile, const float* first_row, std::int64_t stride_l,
                                          int rows, int columns) {
  constexpr int kUnits = kColumns / 4;
#pragma unroll
  for (int i = int(threadIdx.x); i < kSubChunk * kUnits; i += kThreads) {
    const int row = i / kUnits, column = i % kUnits * 4;
    constexpr float kNoSum = -1000.0f;
    float4 unit = make_float4(kNoSum, kNoSum, kNoSum, kNoSum);
    if (row < rows && column < columns) {
      unit = load_global(reinterpret_cast<const float4*>(first_row + row * stride_l + column));
    }
    tile.four(row, column) = unit;
  }
}

/// The 16 x 16 scores of a slice of the keys for sub-chunk r of a head, in memory.
__device__ __forceinline__ __nv_bfloat16* scores_of(const Intermediates& x, const Bf16Arguments& a, int slice, int head,
                                                    int r) {
  return x.scores + ((std::int64_t(slice) * a.B * a.H + head) * sub_chunks(a.L) + r) * kSubChunk * kSubChunk;
}

/// P = the sum of the slices' scores. All threads of the block; each has two neighbours of a row.
__device__ __forceinline__ void load_scores(const ScoreTile& P, const Intermediates& x, const Bf16Arguments& a,
                                            int head, int r) {
  const int row = int(threadIdx.x) / 8, column = int(threadIdx.x) % 8 * 2;
  float2 score{};
  for (int slice = 0; slice < slices(a.Dk); ++slice) {
    const __nv_bfloat16* two = scores_of(x, a, slice, head, r) + row * kSubChunk + column;
    const float2 of_slice = unpack(load_global(reinterpret_cast<const std::uint32_t*>(two)));
    score.x += of_slice.x;
    score.y += of_slice.y;
  }
  *reinterpret_cast<std::uint32_t*>(P.at(row, column)) = pack(score.x, score.y);
}

/// sum += q . k over 8 columns, each product times its decay: decay(i) has those of columns 2 i and 2 i + 1.
template <class Decay>
__device__ __forceinline__ void add_products(float& sum, const uint4& q, const uint4& k, Decay decay) {
  const std::uint32_t qs[4] = {q.x, q.y, q.z, q.w}, ks[4] = {k.x, k.y, k.z, k.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 a = unpack(qs[i]), b = unpack(ks[i]), factors = decay(i);
    sum += a.x * b.x * factors.x;
    sum += a.y * b.y * factors.y;
  }
}

/// A sub-chunk's scores, P_ti = scale sum_d q_td k_id 2^(b_td - b_id) for i <= t, zeros above the diagonal, pair by
/// pair in fp32: calls store(t, i, P_ti) once for each of the 256. All threads of the block.
///
/// On the diagonal nothing decays: those 16 scores are plain products. 8 threads compute one row, and each of them
/// takes every eighth unit of 8 columns. The 120 pairs below it go to 120 threads: row 15 - r has 15 - r of them and
/// row r has r, together 15 for each r < 8. (Above the diagonal the exponent is positive, and the power may be
/// infinite.)
template <int kDk, class Store>
__device__ __forceinline__ void sub_chunk_scores(const SwizzledTile<kDk>& Q, const SwizzledTile<kDk>& K,
                                                 const SumTile<kDk>& sums, float scale, Store store) {
  const int thread = int(threadIdx.x);
  const auto unit = [](const SwizzledTile<kDk>& tile, int row, int column) {
    return *reinterpret_cast<const uint4*>(tile.data + tile.unit(row, column));
  };
  {
    const int t = thread / 8, part = thread % 8;
    float sum = 0;
#pragma unroll
    for (int d = part * 8; d < kDk; d += 64) {
      add_products(sum, unit(Q, t, d), unit(K, t, d), [](int) { return make_float2(1, 1); });
    }
    sum = warp_sum<8>(sum);
    if (part == 0) store(t, t, scale * sum);
  }
  const int r = thread / 16, c = thread % 16;
  if (c == 15) return;
  const int t = c < 15 - r ? 15 - r : r, i = c < 15 - r ? c : c - (15 - r);
  float sum = 0;
#pragma unroll 4
  for (int d = 0; d < kDk; d += 8) {
    const float4 to[2] = {sums.four(t, d), sums.four(t, d + 4)}, from[2] = {sums.four(i, d), sums.four(i, d + 4)};
    add_products(sum, unit(Q, t, d), unit(K, i, d), [&](int j) {
      const float4 &x = to[j / 2], &y = from[j / 2];
      return j % 2 == 0 ? make_float2(exp2f(x.x - y.x), exp2f(x.y - y.y))
                        : make_float2(exp2f(x.z - y.z), exp2f(x.w - y.w));
    });
  }
  store(t, i, scale * sum);
  store(i, t, 0.0f);
}

/// O += Q S, the warp's columns. S is rounded to bf16 on the way.
template <class Shape>
__device__ __forceinline__ void add_from_state(Output& O, const typename Shape::KeyTile& Q,
                                               const typename Shape::State& S) {
  const int lane = int(lane_index());
  const int q_unit = Q.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    std::uint32_t q[4];
    ldmatrix_x4(q, Q.data + Q.advance(q_unit, 0, d * 16));
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float *upper = &S[0][2 * d][2 * j], *lower = &S[0][2 * d + 1][2 * j];
      mma_m16n8k16(O[j], q, {pack(upper[0], upper[1]), pack(lower[0], lower[1])});
    }
  }
}

/// O += P V, the warp's columns.
__device__ __forceinline__ void add_from_scores(Output& O, const ScoreTile& P, const SwizzledTile<kSlice>& V) {
  const int lane = int(lane_index()), first_column = int(threadIdx.x) / 32 * 16;
  std::uint32_t p[4], v[4];
  ldmatrix_x4(p, P.at(lane % 16, lane / 16 * 8));
  ldmatrix_x4_trans(v, V.data + V.unit(lane % 16, first_column + lane / 16 * 8));
  mma_m16n8k16(O[0], p, {v[0], v[1]});
  mma_m16n8k16(O[1], p, {v[2], v[3]});
}

/// S += K^T V, the warp's columns; in the registers it is S^T += V^T K.
template <class Shape>
__device__ __forceinline__ void update_state(typename Shape::State& S, const typename Shape::KeyTile& K,
                                             const typename Shape::ValueTile& V) {
  const int lane = int(lane_index()), first_column = int(threadIdx.x) / 32 * 16;
  std::uint32_t v[4];
  ldmatrix_x4_trans(v, V.data + V.unit(lane / 16 * 8 + lane % 8, first_column + lane / 8 % 2 * 8));
  const int k_unit = K.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    std::uint32_t k[4];
    ldmatrix_x4_trans(k, K.data + K.advance(k_unit, 0, d * 16));
    mma_m16n8k16(S[0][2 * d], v, {k[0], k[1]});
    mma_m16n8k16(S[0][2 * d + 1], v, {k[2], k[3]});
  }
}

/// Calls f(row, column, two) for each pair of neighbours in O that the lane holds and that exists; column counts within
/// the block's.
template <class F>
__device__ __forceinline__ void for_each_pair(Output& O, int rows, int columns, F f) {
  const int lane = int(lane_index()), first_column = int(threadIdx.x) / 32 * 16;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + i % 2 * 8, column = first_column + i / 2 * 8 + lane % 4 * 2;
    if (row < rows && column < columns) f(row, column, &O[i / 2][i % 2 * 2]);
  }
}

}  // namespace tutorial::fused_gla
