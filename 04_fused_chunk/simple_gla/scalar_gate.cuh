#pragma once
/// @file
/// What a gate a head and step adds to chapter 02's chunk of 64 on tensor cores.
///
/// Everything decays by a factor a position, so decays are put on rows: on a row of V on its way into the state, on a
/// row of Q S on its way into O, and on a score by the two positions that it belongs to.
///
/// Sums of gates are fp32. A weak gate behind a sum of -1e4 would be lost in them, so a gate is taken as 2^-40 at
/// least, which beside 1 is nothing in bf16 (and is seen only of a state 2^32 times what comes after it): 64 of those
/// sum up to -2560, where neighbouring fp32 numbers are 2^-12 apart. Six additions make a sum (warp_prefix_sum()), so a
/// decay is wrong by 5e-4 at the very worst, and by 1e-5 behind one or two such gates; bf16 rounds by up to 2^-8 =
/// 3.9e-3. The difference of two sums is exact where both are close, which
/// is where the decay is not zero. Decays are ex2 of such differences, one instruction; below 2^-126 they are 0.

#include <cuda_runtime.h>

#include "02_chunkwise/chunk_products.cuh"
#include "03_gla/gla/base2.cuh"
#include "04_fused_chunk/simple_gla.hpp"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/opaque.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"

namespace tutorial::simple_gla {

using linear_attention::kChunk;

/// A chunk's running sums of gates, to base 2, in the registers of a warp: a lane has those of the positions 2 lane and
/// 2 lane + 1.
struct GateSums {
  float first, second;
  float end;  ///< the sum of all, the same in every lane

  /// All lanes of a warp. @param gates natural logarithms, of the lane's two positions; 0 past the end of the sequence
  __device__ __forceinline__ explicit GateSums(float2 gates) {
    const float a = base2(gates.x), b = base2(gates.y);
    second = warp_prefix_sum(a + b);
    first = second - b;
    end = __shfl_sync(kAllLanes, second, 31);
  }

 private:
  static __device__ __forceinline__ float base2(float gate) { return max(gla::base2(gate), -40.0f); }
};

/// The lane's two of a chunk's gates. @param gates [C] in shared memory
__device__ __forceinline__ float2 gates_of_lane(const float* gates) {
  const int i = 2 * opaque(int(lane_index()));
  return make_float2(gates[i], gates[i + 1]);
}

/// The lane's two of a chunk's gates, 0 past the end. @param a simple_gla's arguments
/// @param t the chunk's first position @param end where the sequence or the segment ends
__device__ __forceinline__ float2 load_gates(const HalfArguments& a, int b, int h, int t, int end) {
  const auto gate = [&](int i) { return i < end ? load_global(a.g.row(b, h, i)) : 0.0f; };
  const int i = t + 2 * int(lane_index());
  return make_float2(gate(i), gate(i + 1));
}

/// What is left at the chunk's end of the state before it, and of what its positions put into it; two of them a lane.
struct DecayToEnd {
  float whole, first, second;

  /// From the sums of the chunk's gates.
  __device__ __forceinline__ explicit DecayToEnd(const GateSums& sums)
      : whole(gla::ex2(sums.end)), first(gla::ex2(sums.end - sums.first)), second(gla::ex2(sums.end - sums.second)) {}

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

/// S = 2^(sum of the gates) S + K^T (diag(2^(end - sums)) V): chapter 02's update_state(), each row of V times the
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

/// The sums for all pairs of positions, in shared memory.
struct SharedSums {
  static constexpr int kBytes = kChunk * int(sizeof(float));

  float* data;

  /// By one warp.
  __device__ __forceinline__ void store(const GateSums& sums) const {
    reinterpret_cast<float2*>(data)[opaque(int(lane_index()))] = make_float2(sums.first, sums.second);
  }
  /// What is left at position t of the state that the chunk starts from.
  __device__ __forceinline__ float from_start(int t) const { return gla::ex2(data[t]); }
  /// What is left at position t of position i, i <= t.
  __device__ __forceinline__ float between(int i, int t) const { return gla::ex2(data[t] - data[i]); }

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
  /// The decays up to the chunk's end.
  __device__ __forceinline__ ToEnd to_end() const { return {*this, from_start(kChunk - 1)}; }
};

/// For chapter 02's masked_scores(): scores that decay. Those above the diagonal it replaces by 0: a product with 0
/// would make NaN of an infinite one.
struct Decayed {
  SharedSums sums;
  float scale;

  /// Nothing at each step.
  __device__ __forceinline__ void step(int) {}
  /// A score with its decay and scale.
  __device__ __forceinline__ float score(int t, int i, float product) { return product * (scale * sums.between(i, t)); }
  /// Nothing at a row.
  __device__ __forceinline__ void row(int, int, float) {}
};

/// O = scale diag(2^sums) O: the rows of Q S.
template <class Shape>
__device__ __forceinline__ void decay_rows(typename Shape::Output& O, const SharedSums& sums, float scale) {
#pragma unroll
  for (int t = 0; t < kChunk / 16; ++t) {
    const int row = t * 16 + int(lane_index()) / 4;
    const float upper = scale * sums.from_start(row), lower = scale * sums.from_start(row + 8);
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
