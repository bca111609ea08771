/// @file
/// `warp_shuffle`: scans in registers, of steps, lanes and warps.
///
/// Idea: three levels, each with the method that is cheapest there. A thread composes its 4 consecutive steps in a
/// loop. The lanes of a warp scan the 32 results by shuffles. Every warp scans the totals of the 8 warps, and only
/// these pass through shared memory. Then each thread knows the map of everything before it and runs its loop a second
/// time.
/// Grows out of: 5_blelloch_gpu.cu
/// Improves on: `blelloch_gpu` has 21 barriers per tile and rounds in which most threads are idle. Here there is one
/// barrier per tile.
/// Unchanged: one block per channel, tile after tile.
/// Equation:
///
///   thread:  p = step 4 after step 3 after step 2 after step 1
///   warp:    p <- p after the p of all lanes below               5 shuffles of a pair
///   block:   y before the thread = (p of the lane below, after the warps below, after the tiles before)(y_0)
///   thread:  y_t = exp(g_t) y_{t-1} + x_t                        4 steps
///
/// Shapes: x, y [B, H, L, D]; g [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in device memory.
/// Thread mapping: block (b, h, d) has 256 threads and tiles of 1024 steps. Every thread keeps what came before the
/// tile in its own registers. The totals have two buffers, which are used in turn. So a warp that is ahead does not
/// overwrite totals that another warp still reads, and one barrier per tile is enough.
/// Resources: 128 bytes of shared memory; 8 registers per thread for steps.
/// Work: 2 compositions per step, and 13 more per 4 steps.
/// Bytes: x and y once, g once per channel.
/// Bound by: latency, because the loads of a tile wait for the tile before.
/// Weakness: a block still walks its sequence tile after tile, so one sequence keeps one multiprocessor busy. With D >
/// 1 neighbouring threads read numbers that are D apart.
/// Sources: Sengupta, Harris, Garland, "Efficient Parallel Scan Algorithms for GPUs", NVR-2008-003.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/channel_per_block.hpp"
#include "06_scan/scan/warp_scan.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::scan {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kSteps = 4;  // of a thread
constexpr int kTile = kThreads * kSteps;
static_assert(kTile == kBlockTile);

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

}  // namespace tutorial::scan
