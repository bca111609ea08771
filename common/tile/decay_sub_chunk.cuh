#pragma once
/// @file
/// The effect of gates inside a sub-chunk, computed by one warp. This is the loop of prepare.cu, which has the idea and
/// the picture. All lanes of the warp call each function.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "common/device/hide_from_compiler.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::tile {

/// A lane's elements of a row: of q and k in their type in memory, of g in fp32.
/// @tparam kElements 2 or 4
template <int kElements>
struct Row {
  std::conditional_t<kElements == 2, std::uint32_t, uint2> q;  ///< of the query
  std::conditional_t<kElements == 2, std::uint32_t, uint2> k;  ///< of the key
  std::conditional_t<kElements == 2, float2, float4> g;
};

/// Two or four elements of a row in fp32, converted from bf16 or unchanged.
__device__ __forceinline__ void convert(float (&to)[2], std::uint32_t from) {
  const float2 two = unpack(from);
  to[0] = two.x, to[1] = two.y;
}
__device__ __forceinline__ void convert(float (&to)[4], uint2 from) {
  const float2 low = unpack(from.x), high = unpack(from.y);
  to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
}
__device__ __forceinline__ void convert(float (&to)[2], float2 from) {
  to[0] = from.x, to[1] = from.y;
}
__device__ __forceinline__ void convert(float (&to)[4], float4 from) {
  to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}
/// `a` if all bits are set, `b` if none is. (From ?: the compiler would make branches, with shuffles in both arms.)
__device__ __forceinline__ float chosen(unsigned bits, float a, float b) {
  return __uint_as_float((__float_as_uint(a) & bits) | (__float_as_uint(b) & ~bits));
}

/// Adds up over the lanes. Each lane has a part of 2 kHalf sums. Lane l gets the sum with number l / (16 / kHalf)
/// modulo 2 kHalf.
/// @tparam kHalf 1, 2, 4 or 8
template <int kHalf>
__device__ __forceinline__ float sum_over_lanes(const float (&parts)[2 * kHalf], int lane) {
  const auto upper = unsigned(hide_from_compiler(lane & (2 * kHalf) ? ~0 : 0));
  float mine[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float kept = chosen(upper, parts[i + kHalf], parts[i]), given = chosen(upper, parts[i], parts[i + kHalf]);
    mine[i] = kept + shuffle_xor(given, 2 * kHalf);
  }
  if constexpr (kHalf > 1) return sum_over_lanes<kHalf / 2>(mine, lane);
  return mine[0] + shuffle_xor(mine[0], 1);
}

/// Loads a lane's elements of a row. Past the end of the sequence or of Dk the last elements are read once more and not
/// used, because loads under a condition would be branches. Rows are aligned to kElements elements, and d is a multiple
/// of kElements.
template <int kElements, class Arguments>
__device__ __forceinline__ Row<kElements> load_row(const Arguments& a, int b, int h, int position, int d) {
  position = min(position, a.L - 1);
  d = min(d, a.Dk - kElements);
  Row<kElements> row{};
  row.q = load_global(reinterpret_cast<const decltype(row.q)*>(a.q.row(b, h, position) + d));
  row.k = load_global(reinterpret_cast<const decltype(row.k)*>(a.k.row(b, h, position) + d));
  row.g = load_global(reinterpret_cast<const decltype(row.g)*>(a.g.row(b, h, position) + d));
  return row;
}

/// The lane's elements d to d + kElements - 1 of a sub-chunk's 16 rows.
/// @tparam kAhead positions whose loads are under way: row t of the sub-chunk is in ahead[t % kAhead]
/// @param ahead its first rows; afterwards the results of load() for the rows from 16 on
/// @param rows the number of positions from the first on that exist, which may exceed 16 or be 0; the others have k = 0
/// and gates of 1
/// @param has_columns whether d < Dk; otherwise k is 0
/// @param load load(t), t from kAhead to kAhead + 15, gives row t
/// @param out gets out.query(t, q_t decayed from the start), out.key(i, k_i decayed to the end), out.decay(of all rows)
/// @param scores the products of these elements are added to it: those of key lane / 2, for the queries from 8 (lane %
/// 2) on
template <int kElements, int kAhead, class Load, class Out>
__device__ __forceinline__ void decay_sub_chunk(Row<kElements> (&ahead)[kAhead], int rows, bool has_columns,
                                                const Load& load, const Out& out, float (&scores)[8]) {
  const int lane = int(lane_index());
  float keys[kSubChunk][kElements];  // decayed so far
  float decay[kElements];            // of all positions up to t
#pragma unroll
  for (float& x : decay) x = 1;
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    float q[kElements], a[kElements], parts[kSubChunk] = {};
    convert(q, ahead[t % kAhead].q);
    convert(keys[t], ahead[t % kAhead].k);
    convert(a, ahead[t % kAhead].g);
    ahead[t % kAhead] = load(t + kAhead);
#pragma unroll
    for (int e = 0; e < kElements; ++e) {
      a[e] = gate(t < rows ? a[e] : 0.0f);
      keys[t][e] = t < rows && has_columns ? keys[t][e] : 0.0f;
      decay[e] *= a[e];
#pragma unroll
      for (int i = 0; i <= t; ++i) {
        if (i < t) keys[i][e] *= a[e];
        parts[i] += q[e] * keys[i][e];
      }
      q[e] *= decay[e];
    }
    const float score = sum_over_lanes<kSubChunk / 2>(parts, lane);
    scores[t % 8] += lane % 2 == t / 8 ? score : 0.0f;
    out.query(t, q);
  }
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) out.key(i, keys[i]);
  out.decay(decay);
}

/// The lane's eight scores in bf16: the unit of that number in a sub-chunk's [16, 16], with P_ti in [i][t].
__device__ __forceinline__ uint4 packed_scores(const float (&scores)[8]) {
  return make_uint4(pack(scores[0], scores[1]), pack(scores[2], scores[3]), pack(scores[4], scores[5]),
                    pack(scores[6], scores[7]));
}

/// A lane's elements of a row, in bf16.
__device__ __forceinline__ std::uint32_t packed_row(const float (&row)[2]) {
  return pack(row[0], row[1]);
}
/// Four elements of a row in bf16.
__device__ __forceinline__ uint2 packed_row(const float (&row)[4]) {
  return make_uint2(pack(row[0], row[1]), pack(row[2], row[3]));
}
/// Two elements of a row in fp32.
__device__ __forceinline__ float2 float_row(const float (&row)[2]) {
  return make_float2(row[0], row[1]);
}
/// Four elements of a row in fp32.
__device__ __forceinline__ float4 float_row(const float (&row)[4]) {
  return make_float4(row[0], row[1], row[2], row[3]);
}

}  // namespace tutorial::tile
