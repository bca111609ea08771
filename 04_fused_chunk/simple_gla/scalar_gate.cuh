#pragma once
/// @file
/// What one gate per head and position adds to chapter 02's chunk of 64 on tensor cores.
///
///     b_t = g_s / ln 2 + ... + g_t / ln 2        s: the chunk's first position, e: its last
///
/// All logarithms are to base 2. The decay from position i to position t is one number, 2^(b_t - b_i), so it is a
/// factor on a score, on a row of Q S, or on a row of V on its way into the state.
///
/// b is fp32. A gate is taken as at least 2^-40 (clamped_gate.cuh), so b_t is at least -2560. Around -2560,
/// neighbouring fp32 numbers are 2^-12 apart. A sum takes six additions (warp_prefix_sum()), so the error of a decay is
/// 5e-4 at the very worst, and 1e-5 after one or two gates of 2^-40. The rounding of bf16 is larger, up to 2^-8 =
/// 3.9e-3. The difference of two sums is exact if both are close, and otherwise the decay is zero. Decays are ex2 of
/// such differences, one instruction; below 2^-126 they are 0.

#include <cuda_runtime.h>

#include "04_fused_chunk/clamped_gate.cuh"
#include "04_fused_chunk/simple_gla.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/chunk_tiles.cuh"

namespace tutorial::simple_gla {

using tile::kChunk;

/// A chunk's b in the registers of a warp: a lane has those of the positions 2 lane and 2 lane + 1.
struct ChunkSums {
  float first, second;
  float end;  ///< b_e, the same in every lane

  /// All lanes of a warp. @param g of the lane's two positions; 0 past the end of the sequence
  __device__ __forceinline__ explicit ChunkSums(float2 g) {
    const float a = clamped_base2(g.x), b = clamped_base2(g.y);
    second = warp_prefix_sum(a + b);
    first = second - b;
    end = __shfl_sync(kAllLanes, second, 31);
  }
};

/// The first 64 threads of the block start the copies of a chunk's g to shared memory, with zeros past the end.
/// @param g [C] @param first the chunk's first in global memory; the next is stride_l elements further
/// @param rows how many positions of the chunk exist
__device__ __forceinline__ void load_g_async(float* g, const float* first, std::int64_t stride_l, int rows) {
  const int i = hide_from_compiler(int(threadIdx.x));
  if (i < kChunk) cp_async<4>(g + i, first + i * stride_l, i < rows);
}

/// The lane's two of a chunk's g. @param g [C] in shared memory
__device__ __forceinline__ float2 g_of_lane(const float* g) {
  const int i = 2 * hide_from_compiler(int(lane_index()));
  return make_float2(g[i], g[i + 1]);
}

/// The same from global memory, 0 past the end. @param t the chunk's first position
/// @param end where the sequence or the segment ends
__device__ __forceinline__ float2 load_g(const Bf16Arguments& a, int b, int h, int t, int end) {
  const auto g = [&](int i) { return i < end ? load_global(a.g.row(b, h, i)) : 0.0f; };
  const int i = t + 2 * int(lane_index());
  return make_float2(g(i), g(i + 1));
}

/// The decay from the start of the chunk to its end, and from each position to its end. Each lane holds two of the
/// latter.
struct DecayToEnd {
  float whole, first, second;

  /// From the chunk's b.
  __device__ __forceinline__ explicit DecayToEnd(const ChunkSums& b)
      : whole(tile::ex2(b.end)), first(tile::ex2(b.end - b.first)), second(tile::ex2(b.end - b.second)) {}

  /// The decays of the positions i + p and i + p + 1, p = 2 (lane % 4), for an even i.
  __device__ __forceinline__ float2 of_pair(int i) const {
    const int source = i / 2 + int(lane_index()) % 4;
    return make_float2(__shfl_sync(kAllLanes, first, source), __shfl_sync(kAllLanes, second, source));
  }
};

/// Two neighbouring bf16 numbers, each times its factor.
__device__ __forceinline__ std::uint32_t times(std::uint32_t two, float2 factors) {
  const float2 x = unpack(two);
  return pack(x.x * factors.x, x.y * factors.y);
}

/// 16 positions of 16 columns of V, each position times its decay, as a fragment of V^T.
/// @param row the row that the lane's ldmatrix reads
/// @param upper,lower DecayToEnd::of_pair() of the first position and of the ninth
__device__ __forceinline__ void load_decayed_values(std::uint32_t (&v)[4], const __nv_bfloat16* row, float2 upper,
                                                    float2 lower) {
  ldmatrix_x4_trans(v, row);
  v[0] = times(v[0], upper);
  v[1] = times(v[1], upper);
  v[2] = times(v[2], lower);
  v[3] = times(v[3], lower);
}

/// S = 2^b_e S + K^T (diag(2^(b_e - b)) V): tile::update_state(), each row of V times the decay of its position. In the
/// registers it is S^T += V^T K, where a row of V is a column of the fragment.
/// @param to_end the chunk's decays: a DecayToEnd, or SharedSums::ToEnd
template <class Shape, class Decays>
__device__ __forceinline__ void update_state(typename Shape::State& S, const typename Shape::KeyTile& K,
                                             const typename Shape::ValueTile& V, const Decays& to_end) {
  const float decay = to_end.whole;
#pragma unroll
  for (auto& tiles : S) {
#pragma unroll
    for (auto& tile : tiles) {
#pragma unroll
      for (float& element : tile) element *= decay;
    }
  }
  const int lane = int(lane_index()), first_column = int(threadIdx.x) / 32 * Shape::kWarpColumns;
  const int k_unit = K.unit(lane % 16, lane / 16 * 8);
  const int v_unit = V.unit(lane / 16 * 8 + lane % 8, first_column + lane / 8 % 2 * 8);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) {
    const float2 upper = to_end.of_pair(i), lower = to_end.of_pair(i + 8);
    std::uint32_t v[Shape::kWarpColumns / 16][4];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      load_decayed_values(v[j], V.data + V.advance(v_unit, i, j * 16), upper, lower);
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

/// A chunk's b for all pairs of positions, in shared memory.
struct SharedSums {
  static constexpr int kBytes = kChunk * int(sizeof(float));

  float* b;  ///< [C]

  /// By one warp.
  __device__ __forceinline__ void store(const ChunkSums& sums) const {
    reinterpret_cast<float2*>(b)[hide_from_compiler(int(lane_index()))] = make_float2(sums.first, sums.second);
  }
  /// The decay from the chunk's start to position t.
  __device__ __forceinline__ float from_start(int t) const { return tile::ex2(b[t]); }
  /// The decay from position i to position t, i <= t.
  __device__ __forceinline__ float between(int i, int t) const { return tile::ex2(b[t] - b[i]); }

  /// As DecayToEnd, each decay computed where it is used: for warps that have no registers left.
  struct ToEnd {
    const SharedSums& sums;
    float whole;

    /// As DecayToEnd::of_pair(); needs no other lane.
    __device__ __forceinline__ float2 of_pair(int i) const {
      const int t = i + int(lane_index()) % 4 * 2;
      return make_float2(sums.between(t, kChunk - 1), sums.between(t + 1, kChunk - 1));
    }
  };
  /// The decays to the chunk's end.
  __device__ __forceinline__ ToEnd to_end() const { return {*this, from_start(kChunk - 1)}; }
};

/// The b of a walk's chunks in shared memory, two chunks at a time, in a copy for each warp, and the g from which they
/// are computed. Each warp adds up g for itself, so no barrier is needed. It does so one chunk ahead: each addition of
/// warp_prefix_sum() waits for the one before it, and the products of a chunk fill that time.
struct WalkedSums {
  static constexpr int kBytes = 2 * (1 + tile::kWarps) * SharedSums::kBytes;

  float* memory;

  /// g [C] of the chunk from t on.
  __device__ __forceinline__ float* g_of(int t) const { return memory + t / kChunk % 2 * kChunk; }
  /// The warp's copy of b.
  __device__ __forceinline__ SharedSums sums_of(int t) const {
    return {memory + (2 + t / kChunk % 2 * tile::kWarps + tile::warp_index()) * kChunk};
  }
  /// Computes b from g.
  __device__ __forceinline__ void add_up(int t) const { sums_of(t).store(ChunkSums(g_of_lane(g_of(t)))); }
  /// The same directly from global memory, for the first chunk. Parameters as load_g().
  __device__ __forceinline__ void add_up(const Bf16Arguments& a, int b, int h, int t, int end) const {
    sums_of(t).store(ChunkSums(load_g(a, b, h, t, end)));
  }
};

/// An epilogue of tile::masked_scores(): P_ti = scale (q_t . k_i) 2^(b_t - b_i). Above the diagonal the power may be
/// infinite. masked_scores() selects zeros there; a multiplication by 0 would give NaN.
struct DecayedScores {
  SharedSums sums;
  float scale;

  /// Nothing at each step.
  __device__ __forceinline__ void step(int) {}
  /// A score with its decay and scale.
  __device__ __forceinline__ float score(int t, int i, float product) { return product * (scale * sums.between(i, t)); }
  /// Nothing at a row.
  __device__ __forceinline__ void row(int, int, float) {}
};

/// Multiplies row t of O by factor(t).
template <class Shape, class Factor>
__device__ __forceinline__ void scale_rows(typename Shape::Output& O, Factor factor) {
#pragma unroll
  for (int t = 0; t < kChunk / 16; ++t) {
    const int row = t * 16 + int(lane_index()) / 4;
    const float upper = factor(row), lower = factor(row + 8);
#pragma unroll
    for (auto& tile : O[t]) {
      tile[0] *= upper;
      tile[1] *= upper;
      tile[2] *= lower;
      tile[3] *= lower;
    }
  }
}

/// O = scale diag(2^b) O: the rows of Q S.
template <class Shape>
__device__ __forceinline__ void decay_rows(typename Shape::Output& O, const SharedSums& sums, float scale) {
  scale_rows<Shape>(O, [&](int t) { return scale * sums.from_start(t); });
}

}  // namespace tutorial::simple_gla
