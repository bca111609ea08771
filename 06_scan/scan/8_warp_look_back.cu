/// @file
/// `warp_look_back`: a warp looks at 32 predecessors at once.
///
/// Idea: composition is associative, so 32 lanes load the words of 32 predecessors in one trip to memory and compose
/// them by a warp scan. The nearest tile that knows y at its end is enough: lanes that hold older tiles drop out.
/// Grows out of: 7_single_pass.cu
/// Improves on: in `single_pass` one thread looks at one predecessor per trip to the second-level cache. With one long
/// sequence, hundreds of tiles are under way at once, and the look-back falls behind the loads.
/// Unchanged: tiles, their order, what they publish.
/// Equation: y_t = exp(g_t) y_{t-1} + x_t
/// Shapes: x, y [B, H, L, D]; g [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in device memory.
/// Thread mapping: as `single_pass`, but the first warp looks back: lane l looks at tile n - 31 + l, for n the newest
/// tile that has not been looked at yet.
/// Resources: 80 bytes of shared memory, 8 registers per thread for steps; a workspace of 16 bytes per tile and
/// channel.
/// Work: 2 compositions per step, 13 more per 4 steps, and 5 per lane for each 32 predecessors.
/// Bytes: x and y once, g once per channel; 16 bytes of maps per tile of 12 KB, read up to 32 times.
/// Bound by: latency. A multiprocessor has 8 blocks with 8 KB of loads each, and every block waits for its
/// predecessors.
/// Requires: fewer than 2^31 tiles.
/// Weakness: tiles of 1024 steps are small compared with the cost of a look-back, and loads of 4 bytes take many
/// instructions.
/// Sources: Merrill and Garland, NVR-2016-002, section 4.4.

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
constexpr int kSteps = 4;  // of a thread
constexpr int kTile = kThreads * kSteps;
static_assert(kTile == kBlockTile);

/// What comes before a tile > 0: the maps of its predecessors, 32 at a time. All lanes of a warp call it and get it.
__device__ Affine<float> look_back(const LookBack& back, int tile, int channel) {
  const int lane = int(lane_index());
  Affine<float> found;
  for (int newest = tile - 1;; newest -= 32) {
    const int n = newest - 31 + lane;
    Words words{kNotPublished, kNotPublished};
    while (n >= 0 && words.up_to_end == kNotPublished && words.own == kNotPublished) {
      words = back.load(n, channel, 0);
      if (words.up_to_end == kNotPublished && words.own == kNotPublished) backoff();
    }
    const unsigned whole = __ballot_sync(kAllLanes, words.up_to_end != kNotPublished);
    const int nearest = 31 - __clz(int(whole));  // -1: none of them knows y at its end
    const bool is_needed = n >= 0 && lane >= nearest;
    const Affine<float> map = to_map(lane == nearest ? words.up_to_end : words.own);
    found = compose(warp_scan(is_needed ? map : Affine<float>{}), found);
    if (whole != 0) return map_of_lane(found, 31);  // the first tile publishes the map up to its end
  }
}

__global__ void __launch_bounds__(kThreads) warp_look_back_kernel(Arguments a, LookBack back) {
  __shared__ Affine<float> totals[kWarps];
  __shared__ float y_before;
  __shared__ int taken_tile;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (thread == 0) taken_tile = back.take_tile();
  __syncthreads();
  const int tile = taken_tile / back.chains, channel = taken_tile % back.chains, t0 = tile * kTile;
  const int d = channel % a.D, head = channel / a.D, h = head % a.H, b = head / a.H;

  Affine<float> steps[kSteps], own;
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int t = t0 + thread * kSteps + i;
    if (t < a.L) {
      steps[i] = {load_global(&a.log_decay.row(b, h, t)[a.Dg == 1 ? 0 : d]), load_global(&a.x.row(b, h, t)[d])};
    }
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) own = compose(own, steps[i]);
  const Affine<float> lanes = warp_scan(own);
  if (lane == 31) totals[warp] = lanes;
  __syncthreads();
  const Affine<float> warps = warp_scan(lane < kWarps ? totals[lane] : Affine<float>{});
  const Affine<float> warps_below = map_of_lane(map_below(warps, 1), warp);
  const Affine<float> whole = map_of_lane(warps, kWarps - 1);
  const bool is_last = t0 + kTile >= a.L;
  Affine<float> before;  // the tile
  if (tile > 0 && warp == 0) {
    if (!is_last && lane == 0) store_relaxed(&back.at(tile, channel, 0).own, to_word(whole));
    before = look_back(back, tile, channel);
  }
  if (thread == 0) {
    if (tile == 0 && a.initial_state.data) before.value = load_global(&a.initial_state.row(b, h, 0)[d]);
    const Affine<float> end = compose(before, whole);
    if (!is_last) {
      store_relaxed(&back.at(tile, channel, 0).up_to_end, to_word(end));
    } else {
      if (a.final_state.data) store_global(&a.final_state.row(b, h, 0)[d], end.value);
      if (a.final_log_decay.data && d < a.Dg) store_global(&a.final_log_decay.row(b, h, 0)[d], end.log_decay);
    }
    y_before = before.value;
  }
  __syncthreads();
  float y = apply(map_below(lanes, 1), apply(warps_below, y_before));
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const int t = t0 + thread * kSteps + i;
    y = apply(steps[i], y);
    if (t < a.L) store_global(&a.y.row(b, h, t)[d], y);
  }
}

}  // namespace

void warp_look_back(const Arguments& a) {
  const std::int64_t tiles = tiles_of(a, kTile);
  const LookBack back = make_look_back("scan: look-back", channels(a), 1, published_maps(a, kTile));
  launch(warp_look_back_kernel, {unsigned(channels(a) * tiles), kThreads}, a, back);
}

}  // namespace tutorial::scan
