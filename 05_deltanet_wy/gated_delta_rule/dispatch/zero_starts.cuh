#pragma once
/// @file
/// Where a walk may start from zeros, with one gate per head (chunk/zero_starts.cuh).
///
/// A step turns S into (I - beta k^T k) exp(g) S. Across k the matrix is 1, and along k it is 1 - beta |k|^2. So where
/// beta |k|^2 is at most 2 it stretches nothing, and what is left of a state is at most the product of the gates.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/zero_starts.cuh"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_threads.cuh"
#include "common/tile/warm_up.cuh"

namespace tutorial::gated_delta_rule {

/// Where a walk of head (b, h) has to start whose outputs begin at `begin`: tile::kNoWarmUp if there is no such place,
/// or a key is so long that the product of gates is no bound. All threads of the block call, and get the same answer.
/// Requires: rows of k aligned to 16 bytes.
/// @tparam kThreads of the block, a multiple of 64
template <int kThreads>
__device__ __forceinline__ int zero_start(const Bf16Arguments& a, int b, int h, int begin) {
  constexpr int kLanes = 8;  // of a key
  const int start =
      tile::warm_up_start(begin, delta_rule::kMostWarmUp, [&](int t) { return load_global(a.g.row(b, h, t)); });
  if (start == tile::kNoWarmUp) return start;
  bool is_bound = true;
  for (int t = start + int(threadIdx.x) / kLanes; t < begin; t += kThreads / kLanes) {
    float squares = 0;
    for (int d = int(threadIdx.x) % kLanes * 8; d < a.Dk; d += kLanes * 8) {
      const uint4 k = load_global(reinterpret_cast<const uint4*>(a.k.row(b, h, t) + d));
      for (const std::uint32_t x : {k.x, k.y, k.z, k.w}) {
        const float2 two = unpack(x);
        squares += two.x * two.x + two.y * two.y;
      }
    }
    is_bound = is_bound && load_global(a.beta.row(b, h, t)) * warp_sum<kLanes>(squares) <= 2;
  }
  return __syncthreads_and(is_bound) ? start : tile::kNoWarmUp;
}

/// The problem of positions `first` to `end` alone, without the tensors that bulk copies read.
__device__ __forceinline__ Bf16Arguments part_of(Bf16Arguments a, int first, int end) {
  a.o.data += first * a.o.stride_l;
  a.g.data += first * a.g.stride_l;
  a.beta.data += first * a.beta.stride_l;
  if (first > 0) a.initial_state.data = nullptr;
  if (end < a.L) a.final_state.data = nullptr;
  a.L = end - first;
  return a;
}

}  // namespace tutorial::gated_delta_rule
