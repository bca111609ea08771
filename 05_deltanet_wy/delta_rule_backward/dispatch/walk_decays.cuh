#pragma once
/// @file
/// The decays of chunks in the walks of `--backward` by warpgroups (segmented_walks.cuh). Everything is transposed there,
/// so the decay of a position multiplies a column.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using gated_delta_rule::kDecayRows;
using gated_delta_rule::kDecays;
using gated_delta_rule::kOfKeys;
using gated_delta_rule::kOfQueries;
using gated_delta_rule::kToEnd;
using tile::kChunk;

/// A warp brings the decays of a head's chunks to shared memory: two of each row per lane, loaded one chunk before they
/// are stored.
class WalkDecays {
 public:
  /// @param of_head [N, kDecayRows, 64] @param first,step the chunks, of which there are N
  __device__ __forceinline__ WalkDecays(const float* of_head, int first, int step, int N)
      : from_(reinterpret_cast<const float2*>(of_head) + lane_index()), n_(first), step_(step), N_(N) {
    load();
  }
  /// Stores those of the next chunk, and starts to load those after it.
  __device__ __forceinline__ void store(float* decays) {
    auto* to = reinterpret_cast<float2*>(decays) + lane_index();
#pragma unroll
    for (int row = 0; row < kDecayRows; ++row) to[row * 32] = next_[row];
    n_ += step_;
    if (n_ >= 0 && n_ < N_) load();
  }

 private:
  __device__ __forceinline__ void load() {
#pragma unroll
    for (int row = 0; row < kDecayRows; ++row) next_[row] = load_for_update(from_ + n_ * (kDecays / 2) + row * 32);
  }

  const float2* from_;
  int n_, step_, N_;
  float2 next_[kDecayRows];
};

/// Two bf16 times two factors, rounded again.
__device__ __forceinline__ std::uint32_t times(std::uint32_t two, float2 factors) {
  const float2 x = unpack(two);
  return pack(factors.x * x.x, factors.y * x.y);
}

/// The decays of the thread's columns p and p + 1 of the 8 from `column` on. @param decays [64] in shared memory
__device__ __forceinline__ float2 two_decays(const float* decays, int column) {
  return *reinterpret_cast<const float2*>(decays + column + lane_index() % 4 * 2);
}

/// fragments = sums, each column times its decay, rounded. @param decays [64] in shared memory
__device__ __forceinline__ void round_decayed(WarpgroupFragments& fragments, const WarpgroupColumns& sums,
                                              const float* decays) {
#pragma unroll
  for (int t = 0; t < kChunk; t += 8) {
    const float2 two = two_decays(decays, t);
    const float* s = sums + t / 2;
    fragments[t / 16][t / 8 % 2 * 2] = pack(two.x * s[0], two.y * s[1]);
    fragments[t / 16][t / 8 % 2 * 2 + 1] = pack(two.x * s[2], two.y * s[3]);
  }
}

/// What round_decayed() leaves out, rounded.
__device__ __forceinline__ void round_errors_of_decayed(WarpgroupFragments& fragments, const WarpgroupColumns& sums,
                                                        const float* decays) {
#pragma unroll
  for (int t = 0; t < kChunk; t += 8) {
    const float2 two = two_decays(decays, t);
    const float* s = sums + t / 2;
    float errors[] = {two.x * s[0], two.y * s[1], two.x * s[2], two.y * s[3]};
    keep_errors(errors);
    fragments[t / 16][t / 8 % 2 * 2] = pack(errors[0], errors[1]);
    fragments[t / 16][t / 8 % 2 * 2 + 1] = pack(errors[2], errors[3]);
  }
}

/// fragments = dO^T, each column times its decay. @param unit first_unit_of_columns()
__device__ __forceinline__ void load_decayed(WarpgroupFragments& fragments, const ValuePanel& dO, int unit,
                                             const float* decays) {
#pragma unroll
  for (int t = 0; t < kChunk; t += 16) {
    ldmatrix_x4_trans(fragments[t / 16], dO.data + dO.advance(unit, t, 0));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      fragments[t / 16][i] = times(fragments[t / 16][i], two_decays(decays, t + i / 2 * 8));
    }
  }
}

/// sums = sums, each column times its decay, + others.
__device__ __forceinline__ void decay_and_add(WarpgroupColumns& sums, const WarpgroupColumns& others,
                                              const float* decays) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; i += 4) {
    const float2 two = two_decays(decays, i * 2);
    sums[i] = two.x * sums[i] + others[i];
    sums[i + 1] = two.y * sums[i + 1] + others[i + 1];
    sums[i + 2] = two.x * sums[i + 2] + others[i + 2];
    sums[i + 3] = two.y * sums[i + 3] + others[i + 3];
  }
}

/// sums = sums + factor others, each column times its decay.
__device__ __forceinline__ void add_and_decay(WarpgroupColumns& sums, const WarpgroupColumns& others, float factor,
                                              const float* decays) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; i += 4) {
    const float2 two = two_decays(decays, i * 2);
    sums[i] = two.x * (sums[i] + factor * others[i]);
    sums[i + 1] = two.y * (sums[i + 1] + factor * others[i + 1]);
    sums[i + 2] = two.x * (sums[i + 2] + factor * others[i + 2]);
    sums[i + 3] = two.y * (sums[i + 3] + factor * others[i + 3]);
  }
}

}  // namespace
}  // namespace tutorial::delta_rule
