/// @file
/// The kernel in front of the stages 7 and 8: the gates of each sub-chunk, in q, in k, and in the scores of its own
/// pairs. prepared.hpp has the formulas.
///
/// Idea: a pair's decay is a product of gates, and a product of numbers between 0 and 1 needs no logarithm to be
/// stable: what is not stable is to divide one by another. So nothing is divided. A key starts as k_i, and with each
/// position t that passes it is multiplied by a_t, once for all of the sub-chunk's queries that are still to come: 16
/// keys in 16 registers for each element d, that fade like rows of a state. A query's score is the product with what
/// is left of the key, and what is left of it in the end is what goes into the state. This takes one exponential for
/// each gate, where stage 6 has one for each pair; and no sum of gates exists that could lose a weak gate behind a
/// strong one.
///
///     t = 1:   k_1
///     t = 2:   k_1 a_2        k_2                      P_2i = sum_d q_2d (row t = 2, column i)_d
///     t = 3:   k_1 a_2 a_3    k_2 a_3    k_3
///      ...
///
/// Shapes: q, k, g [B, H, L, Dk] in; Prepared out.
/// Who does what: block (n, h, b) has chunk n of head (b, h), each of its 4 warps a sub-chunk, without any barrier. A
/// lane has 4 neighbouring elements d of each row (2 where Dk <= 64); slices of 128 elements follow one another. The 16
/// sums of a query are added up over the lanes in 16 shuffles: with each step a lane hands half of its sums to its
/// partner and takes the other half of the partner's, until lane l has that of key l / 2.
/// Loads are 8 positions ahead, in registers: that is what the multiprocessor has of memory requests under way.
/// Resources: 168 registers, three blocks a multiprocessor; no shared memory.
/// Operations for each q_td: 17 / 2 multiply-adds, 15 / 2 multiplications and one exponential, and the shuffles.
/// Bytes: q, k, g read once, as much as q and k written, and 2 / 3 of a byte for each q_td of decays and scores.
/// Limit: the memory's bandwidth. Needs: Dk a multiple of 16, rows aligned to 16 bytes.
/// Weakness: q and k make another trip through memory.
/// Sources: arXiv 2312.06635, section 4.3, for the two levels; products instead of differences of sums are ours.

#include <cuda_runtime.h>

#include "03_gla/gla/base2.cuh"
#include "03_gla/gla/prepared.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/opaque.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::gla {
namespace {

constexpr int kChunkLength = 64;
constexpr int kPrepareThreads = 32 * kChunkLength / kSubChunk;
constexpr int kAhead = 8;  // positions whose loads are under way

/// A lane's elements of a row: of q and k as they lie in memory, of g in fp32.
template <int kElements>
struct Row;
template <>
struct Row<2> {
  std::uint32_t q, k;
  float2 g;
};
template <>
struct Row<4> {
  uint2 q, k;
  float4 g;
};

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
__device__ __forceinline__ void store(__nv_bfloat16* to, const float (&from)[2]) {
  store_global(reinterpret_cast<std::uint32_t*>(to), pack(from[0], from[1]));
}
__device__ __forceinline__ void store(__nv_bfloat16* to, const float (&from)[4]) {
  store_global(reinterpret_cast<uint2*>(to), make_uint2(pack(from[0], from[1]), pack(from[2], from[3])));
}
__device__ __forceinline__ void store(float* to, const float (&from)[2]) {
  store_global(reinterpret_cast<float2*>(to), make_float2(from[0], from[1]));
}
__device__ __forceinline__ void store(float* to, const float (&from)[4]) {
  store_global(reinterpret_cast<float4*>(to), make_float4(from[0], from[1], from[2], from[3]));
}

/// `a` where all bits are set, `b` where none is. (Of ?: the compiler would make branches, with shuffles in both arms.)
__device__ __forceinline__ float chosen(unsigned bits, float a, float b) {
  return __uint_as_float((__float_as_uint(a) & bits) | (__float_as_uint(b) & ~bits));
}

/// Adds up over the lanes: of 2 kHalf sums that each lane has a part of, lane l gets that of number l / (16 / kHalf)
/// modulo 2 kHalf.
template <int kHalf>
__device__ __forceinline__ float sum_over_lanes(const float (&parts)[2 * kHalf], int lane) {
  const auto upper = unsigned(opaque(lane & (2 * kHalf) ? ~0 : 0));
  float mine[kHalf];
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float kept = chosen(upper, parts[i + kHalf], parts[i]), given = chosen(upper, parts[i], parts[i + kHalf]);
    mine[i] = kept + shuffle_xor(given, 2 * kHalf);
  }
  if constexpr (kHalf > 1) {
    return sum_over_lanes<kHalf / 2>(mine, lane);
  } else {
    return mine[0] + shuffle_xor(mine[0], 1);
  }
}

/// Grid (N, H, B).
template <int kElements>
__global__ void __launch_bounds__(kPrepareThreads, 3) prepare_kernel(HalfArguments a, Prepared out) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), lane = int(lane_index());
  const int sub_chunk = int(blockIdx.x) * (kChunkLength / kSubChunk) + int(threadIdx.x) / 32;
  const int first = sub_chunk * kSubChunk;
  const std::int64_t head = std::int64_t(b) * a.H + h;
  const std::int64_t sub_chunk_of_all = head * out.N * (kChunkLength / kSubChunk) + sub_chunk;

  float scores[8] = {};  // of key lane / 2 and the queries 8 (lane % 2) to 8 (lane % 2) + 7
#pragma unroll 1
  for (int slice = 0; slice < a.Dk; slice += 32 * kElements) {
    const int d = slice + lane * kElements;
    // Past the end the last row is read once more, and not used: loads under a condition would be branches.
    const auto load = [&](int t) {
      const int position = min(first + t, a.L - 1), column = min(d, a.Dk - kElements);
      Row<kElements> row;
      row.q = load_global(reinterpret_cast<const decltype(row.q)*>(a.q.row(b, h, position) + column));
      row.k = load_global(reinterpret_cast<const decltype(row.k)*>(a.k.row(b, h, position) + column));
      row.g = load_global(reinterpret_cast<const decltype(row.g)*>(a.g.row(b, h, position) + column));
      return row;
    };
    const auto is_there = [&](int t) { return first + t < a.L; };
    Row<kElements> ahead[kAhead];
#pragma unroll
    for (int t = 0; t < kAhead; ++t) ahead[t] = load(t);

    float keys[kSubChunk][kElements];  // what is left of them
    float decay[kElements];            // of all positions up to t
#pragma unroll
    for (float& x : decay) x = 1;
    __nv_bfloat16* q_row = out.q + sub_chunk_of_all * kSubChunk * a.Dk + d;
#pragma unroll
    for (int t = 0; t < kSubChunk; ++t) {
      float q[kElements], gate[kElements], parts[kSubChunk] = {};
      convert(q, ahead[t % kAhead].q);
      convert(keys[t], ahead[t % kAhead].k);
      convert(gate, ahead[t % kAhead].g);
      if (t + kAhead < kSubChunk) ahead[t % kAhead] = load(t + kAhead);
#pragma unroll
      for (int e = 0; e < kElements; ++e) {
        gate[e] = exp2f(is_there(t) ? base2(gate[e]) : 0.0f);
        keys[t][e] = is_there(t) && d < a.Dk ? keys[t][e] : 0.0f;
        decay[e] *= gate[e];
#pragma unroll
        for (int i = 0; i <= t; ++i) {
          if (i < t) keys[i][e] *= gate[e];
          parts[i] += q[e] * keys[i][e];
        }
        q[e] *= decay[e];
      }
      const float score = sum_over_lanes<kSubChunk / 2>(parts, lane);
      scores[t % 8] += lane % 2 == t / 8 ? score : 0.0f;
      if (d < a.Dk) store(q_row + std::int64_t(t) * a.Dk, q);
    }
    if (d < a.Dk) {
      __nv_bfloat16* k_row = out.k + sub_chunk_of_all * kSubChunk * a.Dk + d;
#pragma unroll
      for (int i = 0; i < kSubChunk; ++i) store(k_row + std::int64_t(i) * a.Dk, keys[i]);
      store(out.decays + sub_chunk_of_all * a.Dk + d, decay);
    }
  }
  const int unit = lane % 2 * 16 + lane / 2;
  const uint4 eight = make_uint4(pack(scores[0], scores[1]), pack(scores[2], scores[3]), pack(scores[4], scores[5]),
                                 pack(scores[6], scores[7]));
  store_global(reinterpret_cast<uint4*>(out.scores + sub_chunk_of_all * kSubChunk * kSubChunk) + unit, eight);
}

int chunk_count(const HalfArguments& a) {
  return (a.L - 1) / kChunkLength + 1;
}

/// Elements of the four tensors, each a multiple of 256 bytes.
struct Sizes {
  std::int64_t rows, decays, scores;

  explicit Sizes(const HalfArguments& a) {
    const std::int64_t sub_chunks = std::int64_t(a.B) * a.H * chunk_count(a) * (kChunkLength / kSubChunk);
    rows = sub_chunks * kSubChunk * a.Dk;
    decays = sub_chunks * a.Dk;
    scores = sub_chunks * kSubChunk * kSubChunk;
  }
};

}  // namespace

Prepared prepare(const HalfArguments& a) {
  const Sizes sizes(a);
  auto* rows = workspace<__nv_bfloat16>("gla: decayed q and k", std::size_t(2 * sizes.rows));
  const Prepared prepared{chunk_count(a), rows, rows + sizes.rows,
                          workspace<float>("gla: decays of sub-chunks", std::size_t(sizes.decays)),
                          workspace<__nv_bfloat16>("gla: scores in sub-chunks", std::size_t(sizes.scores))};
  const auto kernel = a.Dk <= 64 ? prepare_kernel<2> : prepare_kernel<4>;
  launch(kernel, {dim3(unsigned(prepared.N), unsigned(a.H), unsigned(a.B)), kPrepareThreads}, a, prepared);
  return prepared;
}

std::int64_t prepared_memory(const HalfArguments& a) {
  const Sizes sizes(a);
  return 2 * (2 * sizes.rows + sizes.scores) + 4 * sizes.decays;
}

}  // namespace tutorial::gla
