#pragma once
/// @file
/// What one gate per head and position adds to a chunk that warpgroups compute (common/tile/warpgroup_chunk.cuh). The
/// decays are those of scalar_gate.cuh.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {

/// A chunk's decays as the warpgroup with the state needs them, in shared memory.
struct ChunkFactors {
  static constexpr int kBytes = (kChunk + 4) * int(sizeof(float));  ///< 4: so that pairs are aligned

  float* data;  ///< scale 2^b_t for each position t; then 2^b_e

  /// By a warpgroup: each warp writes the factors of its 16 positions, the first one also the decay of the chunk.
  __device__ __forceinline__ void store(const SharedSums& sums, float scale) const {
    const int lane = int(lane_index()), t = tile::warp_in_group() * 16 + lane;
    if (lane < 16) data[t] = scale * sums.from_start(t);
    if (t == kChunk / 4) data[kChunk] = sums.from_start(kChunk - 1);
  }
  /// Those of positions t and t + 1, for an even t.
  __device__ __forceinline__ float2 operator()(int t) const { return *reinterpret_cast<const float2*>(data + t); }
  /// The decay from the chunk's start to its end.
  __device__ __forceinline__ float whole() const { return data[kChunk]; }
};

/// scale 2^(b_t - b_i), the factor of the score of query t and key i.
struct ScoreDecay {
  SharedSums sums;
  float scale;

  /// Of row t and column i; i > t may give infinity.
  __device__ __forceinline__ float operator()(int t, int i) const { return scale * sums.between(i, t); }
};

/// to = diag(2^(b_e - b)) V, by a warpgroup. Each warp takes its 16 positions.
__device__ __forceinline__ void store_decayed_values(const tile::PanelTile<64>& to, const tile::PanelTile<64>& V,
                                                     const SharedSums& sums) {
  const int lane = int(lane_index()), first = tile::warp_in_group() * 16 + lane / 8, column = lane % 8 * 8;
#pragma unroll
  for (int i = 0; i < 16; i += 4) {
    const int unit = V.unit(first + i, column);
    const float decay = sums.between(first + i, kChunk - 1);
    uint4 values = *reinterpret_cast<const uint4*>(V.data + unit);
    for (std::uint32_t* two : {&values.x, &values.y, &values.z, &values.w}) *two = times(*two, {decay, decay});
    store_for_copies(reinterpret_cast<uint4*>(to.data + unit), values);
  }
}

/// v = (diag(2^(b_e - b)) V)^T, as fragments of the warpgroup's left factor.
__device__ __forceinline__ void load_decayed_values(tile::ValueFragments& v, const tile::PanelTile<64>& V,
                                                    const DecayToEnd& to_end) {
  const int lane = int(lane_index());
  const int unit = V.unit(lane / 16 * 8 + lane % 8, tile::warp_in_group() * 16 + lane / 8 % 2 * 8);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) {
    load_decayed_values(v[i / 16], V.data + V.advance(unit, i, 0), to_end.of_pair(i), to_end.of_pair(i + 8));
  }
}

/// S = 2^b_e S.
template <int kSums>
__device__ __forceinline__ void decay_state(float (&S)[kSums], float whole) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) S[i] *= whole;
}

}  // namespace tutorial::simple_gla
