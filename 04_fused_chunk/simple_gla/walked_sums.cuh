#pragma once
/// @file
/// The gates of a walk's chunks: g in shared memory one chunk ahead of the tiles, and what each warp makes of it.

#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::simple_gla {

/// The first 64 threads of the block start the copies of a chunk's g to shared memory, with zeros past the end.
/// @param g [C] @param first the chunk's first in device memory; the next is stride_l elements further
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
  /// The same directly from device memory, for the first chunk. Parameters as load_g().
  __device__ __forceinline__ void add_up(const Bf16Arguments& a, int b, int h, int t, int end) const {
    sums_of(t).store(ChunkSums(load_g(a, b, h, t, end)));
  }
};

/// The decays to the chunk's end, each computed where it is used: for warps that have no registers left.
struct DecaysToEnd {
  const SharedSums& sums;
  float whole;

  /// From the chunk's b.
  __device__ __forceinline__ explicit DecaysToEnd(const SharedSums& sums)
      : sums(sums), whole(sums.from_start(kChunk - 1)) {}

  /// As update_state() asks for them; needs no other lane.
  __device__ __forceinline__ float2 of_pair(int i) const {
    const int t = i + int(lane_index()) % 4 * 2;
    return make_float2(sums.between(t, kChunk - 1), sums.between(t + 1, kChunk - 1));
  }
};

/// O = scale diag(2^b) O: the rows of Q S.
template <class Shape>
__device__ __forceinline__ void decay_rows(typename Shape::Output& O, const SharedSums& sums, float scale) {
  scale_rows<Shape>(O, [&](int t) { return scale * sums.from_start(t); });
}

}  // namespace tutorial::simple_gla
