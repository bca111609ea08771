/// @file
/// `channel_lanes`: lanes are channels.
///
/// Idea: with D > 1 the neighbours in memory are channels, which do not depend on each other. So the 32 lanes of a warp
/// take 32 neighbouring channels, read rows of 128 bytes, and exchange nothing. The steps are split among the warps:
/// each warp has 16 steps of the tile, and only the totals of the warps pass through shared memory.
///
///   warp:    own map of its 16 steps, in each lane for its channel
///   block:   totals of the warps below, and of the tiles before, composed by the first warp, one lane per channel
///   warp:    y_t = exp(g_t) y_{t-1} + x_t                                                              16 steps
///
/// Grows out of: 7_single_pass.cu
/// Improves on: neighbouring threads of `single_pass` and `warp_look_back` read numbers that are D apart, so 4 bytes
/// take a line of 128 bytes.
/// Unchanged: what tiles publish, and the look-back of a thread at one predecessor at a time. Here 32 threads look
/// back, one per channel.
/// Equation: y_t = exp(g_t) y_{t-1} + x_t
/// Shapes: x, y [B, H, L, D]; g [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in device memory.
/// Thread mapping: a block has 8 warps, 32 channels and 128 steps; lane l of each warp has channel d0 + l.
/// Resources: 32 registers per thread for steps, 3 KB of shared memory; a workspace of 16 bytes per tile and channel.
/// Work: 2 compositions per step, and 15 more per 128 steps.
/// Bytes: x and y once, g once per channel; 16 bytes of maps per 1.5 KB of a channel.
/// Bound by: memory, if there are many channels.
/// Requires: fewer than 2^31 tiles.
/// Weakness: its loads have only 4 bytes. With few channels lanes are idle. On one long sequence it looks back one tile
/// per trip to memory.
/// Sources: Merrill and Garland, NVR-2016-002, section 4, for the look-back.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/look_back.cuh"
#include "06_scan/scan/look_back_tiles.hpp"
#include "06_scan/scan/warp_scan.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::scan {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kSteps = 16;  // of a warp
constexpr int kTile = kWarps * kSteps;
static_assert(kTile == kChannelsTile);
constexpr int kChannels = 32;  // of a block

/// Groups of channels of a sequence.
TUTORIAL_HOST_DEVICE int groups_of(const Arguments& a) {
  return (a.D - 1) / kChannels + 1;
}

/// The problem with its channels rounded up to whole groups.
Arguments whole_groups(Arguments a) {
  a.D = groups_of(a) * kChannels;
  return a;
}

/// What comes before a tile > 0: the maps of its predecessors, one at a time.
__device__ Affine<float> look_back(const LookBack& back, int tile, int group) {
  Affine<float> found;
  for (int n = tile - 1;;) {
    const Words words = back.load(n, group, int(lane_index()));
    if (words.up_to_end != kNotPublished) return compose(to_map(words.up_to_end), found);
    if (words.own == kNotPublished) {
      backoff();
      continue;
    }
    found = compose(to_map(words.own), found);
    --n;  // the first tile publishes the map up to its end
  }
}

__global__ void __launch_bounds__(kThreads) channel_lanes_kernel(Arguments a, LookBack back) {
  __shared__ Affine<float> totals[kWarps][kChannels];
  __shared__ float y_before[kWarps][kChannels];
  __shared__ int taken_tile;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (thread == 0) taken_tile = back.take_tile();
  __syncthreads();
  const int tile = taken_tile / back.chains, group = taken_tile % back.chains, t0 = tile * kTile + warp * kSteps;
  const int groups = groups_of(a), d = group % groups * kChannels + lane;
  const int head = group / groups, h = head % a.H, b = head / a.H;

  Affine<float> steps[kSteps], own;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int t = t0 + i;
    if (t < a.L && d < a.D) {
      steps[i] = {load_global(&a.log_decay.row(b, h, t)[a.Dg == 1 ? 0 : d]), load_global(&a.x.row(b, h, t)[d])};
    }
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) own = compose(own, steps[i]);
  totals[warp][lane] = own;
  __syncthreads();
  if (warp == 0 && d < a.D) {
    const bool is_last = t0 + kTile >= a.L;
    Affine<float> before, whole;  // the tile; its own map
#pragma unroll
    for (int w = 0; w < kWarps; ++w) whole = compose(whole, totals[w][lane]);
    if (tile > 0) {
      if (!is_last) store_relaxed(&back.at(tile, group, lane).own, to_word(whole));
      before = look_back(back, tile, group);
    } else if (a.initial_state.data) {
      before.value = load_global(&a.initial_state.row(b, h, 0)[d]);
    }
    const Affine<float> end = compose(before, whole);
    if (!is_last) {
      store_relaxed(&back.at(tile, group, lane).up_to_end, to_word(end));
    } else {
      if (a.final_state.data) store_global(&a.final_state.row(b, h, 0)[d], end.value);
      if (a.final_log_decay.data && d < a.Dg) store_global(&a.final_log_decay.row(b, h, 0)[d], end.log_decay);
    }
    float y = before.value;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      y_before[w][lane] = y;
      y = apply(totals[w][lane], y);
    }
  }
  __syncthreads();
  float y = d < a.D ? y_before[warp][lane] : 0.0f;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int t = t0 + i;
    y = apply(steps[i], y);
    if (t < a.L && d < a.D) store_global(&a.y.row(b, h, t)[d], y);
  }
}

}  // namespace

void channel_lanes(const Arguments& a) {
  const std::int64_t tiles = tiles_of(a, kTile), groups = std::int64_t(a.B) * a.H * groups_of(a);
  const LookBack back = make_look_back("scan: look-back", groups, kChannels, published_maps(whole_groups(a), kTile));
  launch(channel_lanes_kernel, {unsigned(groups * tiles), kThreads}, a, back);
}

}  // namespace tutorial::scan
