#pragma once
/// @file
/// Where a walk may start from zeros, from gates and keys alone (chunk/zero_starts.cuh).
///
/// A step turns S into (I - beta k^T k) diag(exp(g)) S. The matrix mixes rows, so what is left of a row is not the
/// product of its own gates: in each step the row that forgets least may have all of it. Where beta |k|^2 is at most 2,
/// the matrix stretches nothing, and what is left is at most the product of the largest gates of all positions.
/// transition_bound.cuh has a better bound, which takes a prepared chunk. With gates of exp(-5 sigmoid(x)), this one
/// needs one chunk, too.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/kda.hpp"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/chunk_threads.cuh"
#include "common/tile/warm_up.cuh"

namespace tutorial::kda {

/// Where a walk of head (b, h) has to start whose outputs begin at `begin`; tile::kNoWarmUp if there is no such place
/// within a few chunks. It gives up at the first chunk after which less is forgotten than the chunk's share. All
/// threads of the block call, and get the same answer. Requires: rows of k and g aligned to 16 bytes.
/// @param sums one for each warp, in shared memory
/// @tparam kThreads of the block
/// @tparam kNormalize whether keys will be brought to length 1
template <int kThreads, bool kNormalize>
__device__ __forceinline__ int zero_start(const Bf16Arguments& a, int b, int h, int begin, float* sums) {
  using tile::kChunk;
  constexpr int kLanes = kThreads / kChunk, kLimit = 3;  // of a position; chunks
  const int lane = int(threadIdx.x) % kLanes;
  float sum = 0;
  for (int n = 1; n <= kLimit; ++n) {
    const int first = begin - n * kChunk, t = first + int(threadIdx.x) / kLanes;
    if (first <= 0) return 0;
    float largest = -INFINITY, squares = 0;
    for (int d = lane * 4; d < a.Dk; d += kLanes * 4) {
      const float4 g = load_global(reinterpret_cast<const float4*>(a.g.row(b, h, t) + d));
      const uint2 k = load_global(reinterpret_cast<const uint2*>(a.k.row(b, h, t) + d));
      const float2 low = unpack(k.x), high = unpack(k.y);
      largest = max(largest, max(max(g.x, g.y), max(g.z, g.w)));
      squares += low.x * low.x + low.y * low.y + high.x * high.x + high.y * high.y;
    }
    squares = kNormalize ? 1 : warp_sum<kLanes>(squares);
    // Half of 2^-24 at once would be enough, and sums stay finite.
    const float of_position = max(tile::base2(warp_max<kLanes>(largest)), 2 * tile::kForgotten);
    if (lane == 0 && !(load_global(a.beta.row(b, h, t)) * squares <= 2)) largest = INFINITY;
    const float of_warp = warp_sum(lane == 0 ? (largest == INFINITY ? INFINITY : of_position) : 0.0f);
    __syncthreads();  // all threads have read the sums of the chunk before
    if (lane_index() == 0) sums[threadIdx.x / 32] = of_warp;
    __syncthreads();
    for (int i = 0; i < kThreads / 32; ++i) sum += sums[i];
    if (sum <= tile::kForgotten) return first;
    if (!(sum <= tile::kForgotten * float(n) / kLimit)) break;
  }
  return tile::kNoWarmUp;
}

/// The problem of positions `first` to `end` alone, without the tensors that bulk copies move.
__device__ __forceinline__ Bf16Arguments part_of(Bf16Arguments a, int first, int end) {
  a.beta.data += first * a.beta.stride_l;
  if (first > 0) a.initial_state.data = nullptr;
  if (end < a.L) a.final_state.data = nullptr;
  a.L = end - first;
  return a;
}

}  // namespace tutorial::kda
