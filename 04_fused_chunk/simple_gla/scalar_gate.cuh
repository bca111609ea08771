#pragma once
/// @file
/// What one gate per head and position adds to chapter 02's chunk of 64 on tensor cores.
///
///     b_t = the sum of g / ln 2 from the chunk's first position to t, b_end that to its last
///
/// All logarithms are to base 2. The decay from position i to position t is one number, 2^(b_t - b_i), so it is a
/// factor on a score, on a row of Q S, or on a row of V on its way into the state.
///
/// b is fp32. A gate is taken as at least 2^-127 (clamped_gate.cuh), so b_t is at least -8128. Around -8128,
/// neighbouring fp32 numbers are 2^-11 apart. A sum takes six additions (warp_prefix_sum()), so the error of a decay is
/// 1e-3 at the very worst, and 3e-5 after one or two closed gates. The rounding of bf16 is larger, up to 2^-8 =
/// 3.9e-3. The difference of two sums is exact if both are close, and otherwise the decay is zero. Decays are ex2 of
/// such differences, one instruction; below 2^-126 they are 0.

#include <cuda_runtime.h>

#include "04_fused_chunk/clamped_gate.cuh"
#include "04_fused_chunk/simple_gla.hpp"
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
  float first, second, end;  ///< `end` is b_end, the same in every lane

  /// All lanes of a warp. @param g of the lane's two positions; 0 past the end of the sequence
  __device__ __forceinline__ explicit ChunkSums(float2 g) {
    const float a = clamped_base2(g.x), b = clamped_base2(g.y);
    second = warp_prefix_sum(a + b);
    first = second - b;
    end = __shfl_sync(kAllLanes, second, 31);
  }
};

/// The lane's two of a chunk's g, 0 past the end. @param t the chunk's first position
/// @param end where the sequence or the segment ends
__device__ __forceinline__ float2 load_g(const Bf16Arguments& a, int b, int h, int t, int end) {
  const auto g = [&](int i) { return i < end ? load_global(a.g.row(b, h, i)) : 0.0f; };
  const int i = t + 2 * int(lane_index());
  return make_float2(g(i), g(i + 1));
}

/// Two neighbouring bf16 numbers, each times its factor.
__device__ __forceinline__ std::uint32_t times(std::uint32_t two, float2 factors) {
  const float2 x = unpack(two);
  return pack(x.x * factors.x, x.y * factors.y);
}

/// S = 2^b_end S + K^T (diag(2^(b_end - b)) V): tile::update_state(), each row of V times the decay of its position. In
/// the registers it is S^T += V^T K, where a row of V is a column of the fragment.
/// @param to_end the chunk's decays: `whole`, and of_pair(i) of the positions i + p and i + p + 1, p = 2 (lane % 4)
template <class Shape, class Decays>
__device__ __forceinline__ void update_state(typename Shape::State& S, const typename Shape::KeyTile& K,
                                             const typename Shape::ValueTile& V, const Decays& to_end) {
#pragma unroll
  for (auto& tiles : S) {
#pragma unroll
    for (auto& tile : tiles) {
#pragma unroll
      for (float& element : tile) element *= to_end.whole;
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
      ldmatrix_x4_trans(v[j], V.data + V.advance(v_unit, i, j * 16));
      v[j][0] = times(v[j][0], upper);
      v[j][1] = times(v[j][1], upper);
      v[j][2] = times(v[j][2], lower);
      v[j][3] = times(v[j][3], lower);
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

}  // namespace tutorial::simple_gla
