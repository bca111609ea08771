#pragma once
/// @file
/// Where the gradients keep 16 bits of a factor, not 8: in chunks with many keys that are alike.
///
/// There v_new, dv_new, P and Y are rows that cancel: with one key, v_new of position t is nearly v_t - v_{t-1}, and the
/// state's answer to the key is the sum of all. If each of n rows is rounded, each with a relative error e of its own, the
/// sum is off by e sqrt(2 n). With many kinds of keys n is how many there are of one kind. So n is the sum of (k_t . k_i)^2
/// over the keys i before t, and a chunk where it stays below kMostAlike loses no more than e sqrt(2 kMostAlike) = 4 e.
/// With e = 1.7e-3, the root mean square of one rounding to bf16, and two factors that err in dq, that is 9e-3. Other
/// chunks are marked by the kernel that computes T, and there the factors are two bf16 (split.cuh), which costs products.
///
/// The mark needs no memory: T is 0 above its diagonal, and a zero has a sign. That of T's element (0, 15) tells.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/block_rows.cuh"
#include "05_deltanet_wy/chunk/blocks.hpp"
#include "05_deltanet_wy/chunk/inverse.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/panel_tile.cuh"

namespace tutorial::delta_rule {

/// How many keys may be alike before a chunk is marked.
inline constexpr float kMostAlike = 8;

/// Where less is left of a state after a chunk, rounding errors of P stay: the decays of pairs cannot be told from those of
/// positions any more, and of the keys that are alike, at most half reach far enough for these errors to count.
inline constexpr float kLeastWhole = 0x1p-20f;

/// What the four warps of a block that computes T find out, each from its row of the blocks, in shared memory.
using AlikeRows = bool[kBlocks];

/// Notes whether too many keys are alike, as far as a warp can tell from its row of the blocks of K K^T. Then it makes A of
/// it: zeros on and above the diagonal, and each row times its beta.
__device__ __forceinline__ void note_alike(AlikeRows& alike, BlockRow& N, int r, const float* beta) {
  for_each_element(N, r, [](int t, int i, float& x) {
    if (i >= t) x = 0;
  });
  float sums[2] = {};  // of the lane's part of two rows
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c > r) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i % 4 / 2] += N[c][i / 4][i % 4] * N[c][i / 4][i % 4];
  }
#pragma unroll
  for (float& sum : sums) {
    sum += __shfl_xor_sync(kAllLanes, sum, 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
  }
  const bool any = __any_sync(kAllLanes, fmaxf(sums[0], sums[1]) > kMostAlike);
  if (lane_index() == 0) alike[r] = any;
  const float* of_lane = beta + r * kBlock + lane_index() / 4;
  const float betas[] = {of_lane[0], of_lane[8]};
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c > r) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) N[c][i / 4][i % 4] *= betas[i % 4 / 2];
  }
}

/// Gives T's element (0, 15) its sign, in the warp that has row 0 of T's blocks. The caller waits at a barrier before.
__device__ __forceinline__ void mark(BlockRow& T, int r, const AlikeRows& alike) {
  if (r > 0 || lane_index() != 3) return;
  T[0][1][1] = alike[0] || alike[1] || alike[2] || alike[3] ? -0.0f : 0.0f;
}

/// The mark of T as rows in shared memory.
__device__ __forceinline__ bool is_marked(const tile::PanelTile<64>& T) {
  return *reinterpret_cast<const std::uint16_t*>(T.data + T.unit(0, 8) + 7) >> 15 != 0;
}
/// The mark of T as fragments in shared memory.
__device__ __forceinline__ bool is_marked(const uint4* T) {
  return T[3].y >> 31 != 0;
}
/// The mark of T as B fragments of its blocks (for_gradients.hpp) in shared memory.
__device__ __forceinline__ bool is_marked_flipped(const uint4* T) {
  return (T[28].z >> 15 & 1) != 0;
}
/// The mark in device memory, of the chunk of this number, as it is loaded. A kernel before has written T.
__device__ __forceinline__ std::uint32_t load_mark(const uint4* T, std::int64_t chunk) {
  return load_early(&T[chunk * 2 * kLowerBlocks * 32 + 3].y);
}
/// The same of T as a tile.
__device__ __forceinline__ std::uint32_t load_mark(const PreparedTiles& prepared, std::int64_t chunk) {
  return load_early(reinterpret_cast<const std::uint32_t*>(prepared.tiles + chunk * kPreparedRows * 64 + 14));
}
/// What load_mark() has loaded.
__device__ __forceinline__ bool is_marked(std::uint32_t mark) {
  return mark >> 31 != 0;
}

/// x = what is left of x after rounding to bf16.
template <int kCount>
__device__ __forceinline__ void keep_errors(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const float2 two = unpack(pack(x[i], x[i + 1]));
    x[i] -= two.x;
    x[i + 1] -= two.y;
  }
}

}  // namespace tutorial::delta_rule
