#pragma once
/// @file
/// What a gate a head and step adds to chapter 02's chunk of 64 on tensor cores.
///
/// Everything decays by a factor a position, so decays are put on rows: on a row of V on its way into the state, on a
/// row of Q S on its way into O, and on a score by the two positions that it belongs to.
///
/// A sum of up to 64 gates is made in double. In fp32 a weak gate behind a sum of -1e4 is lost, even one behind -256,
/// which is what base2() leaves of the strongest: 63 of these sum up to -16128, where neighbouring fp32 numbers are
/// 1e-3 apart. A double has one gate's 29 more bits to spare, and there is one addition a position. Where a
/// difference is needed for each pair of positions, the sum is handed on as two fp32 numbers, `high` and what it
/// leaves out, `low`: the difference of the high ones is exact where both are close, which is where the decay is not
/// zero. Its own relative error is that of ex2, 2^-22, behind gates of any strength.

#include <cuda_runtime.h>

#include "02_chunkwise/chunk_products.cuh"
#include "03_gla/gla/base2.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"

namespace tutorial::simple_gla {

using linear_attention::kChunk;

/// A chunk's running sums of gates, to base 2, in the registers of a warp: a lane has those of the positions 2 lane and
/// 2 lane + 1.
struct GateSums {
  double first, second;
  double end;  ///< the sum of all, the same in every lane

  /// All lanes of a warp. @param gates of the lane's two positions; 0 past the end of the sequence
  __device__ __forceinline__ explicit GateSums(float first_gate, float second_gate) {
    const double b = gla::base2(second_gate);
    second = warp_prefix_sum(double(gla::base2(first_gate)) + b);
    first = second - b;
    end = __shfl_sync(kAllLanes, second, 31);
  }
};

/// What is left at the chunk's end of the state before it, and of what its positions put into it; two of them a lane.
struct DecayToEnd {
  float whole, first, second;

  __device__ __forceinline__ explicit DecayToEnd(const GateSums& sums)
      : whole(exp2f(float(sums.end))),
        first(exp2f(float(sums.end - sums.first))),
        second(exp2f(float(sums.end - sums.second))) {}

  /// The decays of the positions i + p and i + p + 1, p = 2 (lane % 4), for an even i.
  __device__ __forceinline__ float2 of_pair(int i) const {
    const int source = i / 2 + int(lane_index()) % 4;
    return make_float2(__shfl_sync(kAllLanes, first, source), __shfl_sync(kAllLanes, second, source));
  }
};

/// Two neighbouring numbers of bf16, each times its factor.
__device__ __forceinline__ std::uint32_t times(std::uint32_t two, float2 factors) {
  const float2 x = unpack(two);
  return pack(x.x * factors.x, x.y * factors.y);
}

/// S = 2^(sum of the gates) S + (diag(2^(end - sums)) K)^T V: chapter 02's update_state(), each row of V times the
/// decay of its position. In the registers it is S^T += V^T K, where a row of V is a column of the fragment.
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
      ldmatrix_x4_trans(v[j], V.data + V.moved(v_unit, i, j * 16));
      v[j][0] = times(v[j][0], upper);
      v[j][1] = times(v[j][1], upper);
      v[j][2] = times(v[j][2], lower);
      v[j][3] = times(v[j][3], lower);
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

/// The sums for all pairs of positions, in shared memory: x the high part, y the low one.
struct SharedSums {
  static constexpr int kElements = kChunk;

  float2* data;

  static __device__ __forceinline__ float2 split(double sum) {
    const auto high = float(sum);
    return make_float2(high, float(sum - double(high)));
  }
  /// By one warp.
  __device__ __forceinline__ void store(const GateSums& sums) const {
    const int lane = int(lane_index());
    data[2 * lane] = split(sums.first);
    data[2 * lane + 1] = split(sums.second);
  }

  /// What is left at position t of the state that the chunk starts from.
  __device__ __forceinline__ float from_start(int t) const { return exp2f(data[t].x); }
  /// As DecayToEnd, each decay computed where it is used: for warps that have no registers left.
  struct ToEnd {
    const SharedSums& sums;
    float whole;

    __device__ __forceinline__ float2 of_pair(int i) const {
      const int t = i + int(lane_index()) % 4 * 2;
      return make_float2(sums.between(t, kChunk - 1), sums.between(t + 1, kChunk - 1));
    }
  };
  __device__ __forceinline__ ToEnd to_end() const { return {*this, from_start(kChunk - 1)}; }

  /// What is left at position t of position i, i <= t.
  __device__ __forceinline__ float between(int i, int t) const {
    const float2 from = data[i], to = data[t];
    return exp2f((to.x - from.x) + (to.y - from.y));
  }
};

/// For chapter 02's masked_scores(): scores that decay. Those above the diagonal it replaces by 0: a product with 0
/// would make NaN of an infinite one.
struct Decayed {
  SharedSums sums;

  __device__ __forceinline__ void step(int) {}
  __device__ __forceinline__ float score(int t, int i, float product) { return product * sums.between(i, t); }
  __device__ __forceinline__ void row(int, int, float) {}
};

/// O = diag(2^sums) O: the rows of Q S.
template <class Shape>
__device__ __forceinline__ void decay_rows(typename Shape::Output& O, const SharedSums& sums) {
#pragma unroll
  for (int t = 0; t < kChunk / 16; ++t) {
    const int row = t * 16 + int(lane_index()) / 4;
    const float upper = sums.from_start(row), lower = sums.from_start(row + 8);
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
