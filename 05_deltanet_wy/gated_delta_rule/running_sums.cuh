#pragma once
/// @file
/// The running sums of a chunk's gates, to base 2. prepare_gated.cuh says why no gate is taken as less than 2^-127.

#include <cuda_runtime.h>

#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/view.hpp"

namespace tutorial::gated_delta_rule {

/// b of the chunk from position t on, b[i] = g_t / ln 2 + ... + g_(t+i) / ln 2. One warp computes it; each lane has two
/// neighbouring positions. @param b [64] in shared memory
__device__ __forceinline__ void running_sums(float* b, const View<const float>& g, int batch, int h, int t, int L) {
  constexpr float kStrongest = -127;  // of a gate's logarithm
  const int i = 2 * int(lane_index());
  const auto gate = [&](int n) { return n < L ? max(tile::base2(load_global(g.row(batch, h, n))), kStrongest) : 0.0f; };
  const float first = gate(t + i), second = gate(t + i + 1), sum = warp_prefix_sum(first + second);
  b[i] = sum - second;
  b[i + 1] = sum;
}

}  // namespace tutorial::gated_delta_rule
