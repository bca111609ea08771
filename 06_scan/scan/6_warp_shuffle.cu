/// @file
/// Stage 6, `warp_shuffle`: scans in registers: steps, lanes, warps.
///
/// Idea: three levels, each with what is cheapest there. A thread composes its 4 consecutive steps in a loop; the lanes
/// of a warp scan the 32 results by shuffles; and every warp scans the totals of the 8 warps, which are all that goes
/// through shared memory. Then each thread knows the map of everything before it and runs its loop again.
/// Mends: stage 5's 21 barriers a tile are 1, and no round has idle threads. Same: a block a channel, tile after tile.
///
///   thread:  p = step 4 after step 3 after step 2 after step 1
///   warp:    p <- p after the p of all lanes below               5 shuffles of a pair
///   block:   y before the thread = (p of the lane below, after the warps below, after the tiles before)(y_0)
///   thread:  y_t = exp(g_t) y_{t-1} + x_t                        4 steps
///
/// Shapes: those of stage 4.
/// Who does what: block (b, h, d) has 256 threads and tiles of 1024 steps. All threads keep what came before the tile,
/// each in its own registers. The totals have two buffers, used in turn: so a warp that is ahead does not overwrite
/// what another still reads, and one barrier a tile is enough.
/// Resources: 128 bytes of shared memory; 8 registers for steps.
/// Work: 2 compositions a step, and 13 for each 4 steps. Bytes: x and y once, g once a channel.
/// Limit: latency: a tile's loads wait for the tile before. Needs: nothing.
/// Weakness: a block still walks its sequence tile after tile, so one sequence is one multiprocessor; and with D > 1
/// neighbouring threads read numbers that are D apart. Stage 7 mends both.
/// Source: Sengupta, Harris, Garland, "Efficient Parallel Scan Algorithms for GPUs", NVR-2008-003.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/block_a_channel.hpp"
#include "06_scan/scan/warp_scan.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::scan {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kSteps = 4;  // of a thread
constexpr int kTile = kThreads * kSteps;

__global__ void __launch_bounds__(kThreads) shuffle_kernel(Arguments a) {
  __shared__ Affine<float> totals[2][kWarps];
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int d = int(blockIdx.x) % a.D, head = int(blockIdx.x) / a.D, h = head % a.H, b = head / a.H;
  Affine<float> before;  // the tile
  if (a.initial_state.data) before.value = load_global(&a.initial_state.row(b, h, 0)[d]);

  for (int t0 = 0, buffer = 0; t0 < a.L; t0 += kTile, buffer ^= 1) {
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
    if (lane == 31) totals[buffer][warp] = lanes;
    __syncthreads();
    const Affine<float> warps = warp_scan(lane < kWarps ? totals[buffer][lane] : Affine<float>{});
    const Affine<float> warps_below = map_of_lane(map_below(warps, 1), warp);
    float y = apply(map_below(lanes, 1), apply(warps_below, before.value));
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int t = t0 + thread * kSteps + i;
      y = apply(steps[i], y);
      if (t < a.L) store_global(&a.y.row(b, h, t)[d], y);
    }
    before = compose(before, map_of_lane(warps, kWarps - 1));
  }
  if (thread > 0) return;
  if (a.final_state.data) store_global(&a.final_state.row(b, h, 0)[d], before.value);
  if (a.final_log_decay.data && d < a.Dg) store_global(&a.final_log_decay.row(b, h, 0)[d], before.log_decay);
}

}  // namespace

void warp_shuffle(const Arguments& a) {
  launch(shuffle_kernel, {unsigned(channels(a)), kThreads}, a);
}

std::string warp_shuffle_limits(const Arguments& a) {
  return block_a_channel_limits(a, kTile);
}

}  // namespace tutorial::scan
