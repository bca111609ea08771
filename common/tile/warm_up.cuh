#pragma once
/// @file
/// A start that needs no past: how far before a segment a walk has to begin if it begins with a state of zeros.
///
/// Let a segment begin at position t, and let D be the product of the gates of the positions s, ..., t - 1. Then
///
///     S_t-1 = D S_s-1 + what the positions s, ..., t - 1 put into a state of zeros.
///
/// A walk that begins with zeros at s, the warm-up, computes the second part and drops the first. An element of the state
/// loses at most D times what it was before s, or, where each channel d has gates of its own, D_d times that: the channel
/// that forgets least decides. From t on the loss fades with the state. D <= 2^-24 is allowed: that is half a unit in the
/// last place of an fp32 number, and bf16 rounds to 2^-8. So a state that enters o rounded to bf16 is the same number,
/// unless the state before s was larger by orders of magnitude. It also holds for a rule that multiplies the state by
/// gates and by matrices of norm 1 or less (the delta rule with keys of length 1), for the norm of the state's columns.
///
/// At position 0 the state is known: the initial state, or zeros. A warm-up that comes there is exact whatever the gates.
/// The functions look at the gates chunk by chunk, from t - 1 down. The same gates and limit give the same answer in
/// every kernel, so kernels that ask the same question agree without a word in memory.

#include <cuda_runtime.h>

#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/chunk_threads.cuh"

namespace tutorial::tile {

inline constexpr float kForgotten = -24;  ///< the logarithm to base 2 of what may be left of the state before a warm-up
inline constexpr int kNoWarmUp = -1;      ///< no start within the limit will do: the exact way

/// Where the warm-up of a segment starts, for one gate per position: the last position that is a whole number of chunks
/// before the segment, from which the product of gates is at most 2^-24, or position 0; kNoWarmUp if that is more than
/// `limit` chunks away. All lanes of a warp call, and get the same answer.
/// @param begin the segment's first position, a multiple of kChunk @param limit 1 or more
/// @param g g(t), the natural logarithm of the gate of position t, at most 0; called for positions before `begin`
template <class Gate>
__device__ __forceinline__ int warm_up_start(int begin, int limit, Gate g) {
  constexpr int kAtOnce = 8;  // chunks whose loads are under way
  float sum = 0;
  for (int n = 0; n < limit; n += kAtOnce) {
    float of_lane[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int t = begin - (n + i + 1) * kChunk;
      of_lane[i] = n + i < limit && t > 0 ? base2(g(t + int(lane_index()))) + base2(g(t + 32 + int(lane_index()))) : 0;
    }
    // Where all of these chunks do not forget enough, one sum says so.
    float of_all = 0;
    for (const float of_chunk : of_lane) of_all += of_chunk;
    of_all = warp_sum(of_all);
    if (sum + of_all > kForgotten && begin > (n + kAtOnce) * kChunk) {
      sum += of_all;
      continue;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int t = begin - (n + i + 1) * kChunk;
      if (n + i == limit) break;
      if (t <= 0) return 0;
      sum += warp_sum(of_lane[i]);
      if (sum <= kForgotten) return t;
    }
  }
  return kNoWarmUp;
}

/// The same with a gate for each channel. All threads of the block call, and get the same answer; it is a barrier for
/// them. Each chunk takes a trip to memory. So it gives up at the first chunk after which some channel has forgotten
/// less than its share: 24 bits times the chunks so far over `limit`. The answer is then position 0 if the limit reaches it.
/// @tparam kThreads of the block, at least 128 @param channels at most 128
/// @param g g(t, d), the natural logarithm of the gate of channel d at position t, at most 0
template <int kThreads, class Gate>
__device__ __forceinline__ int warm_up_start(int begin, int limit, int channels, Gate g) {
  constexpr int kLanes = kThreads >= 512 ? 4 : kThreads >= 256 ? 2 : 1;  // of a channel, each with part of a chunk
  constexpr int kPositions = kChunk / kLanes;
  static_assert(kThreads / kLanes >= 128);
  const int d = int(threadIdx.x) / kLanes, first = int(threadIdx.x) % kLanes * kPositions;
  float sum = 0;
  for (int n = 1; n <= limit; ++n) {
    const int t = begin - n * kChunk;
    if (t <= 0) return 0;
    float of_thread = 0;
#pragma unroll
    for (int i = 0; i < kPositions; ++i) of_thread += d < channels ? base2(g(t + first + i, d)) : 2 * kForgotten;
    sum += warp_sum<kLanes>(of_thread);
    if (__syncthreads_and(sum <= kForgotten)) return t;
    if (!__syncthreads_and(sum <= kForgotten * float(n) / float(limit))) break;
  }
  return begin <= limit * kChunk ? 0 : kNoWarmUp;
}

/// Writes how much a chunk of the delta rule with one gate per position leaves of a state at most. A step turns S into
/// (I - beta k^T k) exp(g) S. The matrix stretches what lies along k by 1 - beta |k|^2, and nothing else. One warp calls.
/// @param sum of the chunk's gates, to base 2
/// @param beta,factors,squares [64] in shared memory: keys are multiplied by factors, and have these squares before
__device__ __forceinline__ void store_bound(float* bound, float sum, const float* beta, const float* factors,
                                            const float* squares) {
  const auto stretch = [&](int t) { return max(fabsf(1 - beta[t] * factors[t] * factors[t] * squares[t]), 1.0f); };
  const int lane = int(lane_index());
  const float of_chunk = ex2(sum + warp_sum(log2f(stretch(lane)) + log2f(stretch(lane + 32))));
  if (lane == 0) store_global(bound, of_chunk);
}

}  // namespace tutorial::tile
