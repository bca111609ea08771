/// @file
/// `single_pass`: all tiles run at once, and each looks back at those before it.
///
/// Idea: each tile has its own block, which scans the tile as in `warp_shuffle`. The block learns what came before from
/// the tiles before it, through memory (look_back.cuh). Meanwhile its own steps wait in registers. So each input is
/// read once and each output is written once, however long the sequence is, and all multiprocessors work on it.
///
///   tile:    own map = step t0 + 1023 after ... after step t0                            published
///   before:  own maps of tiles n - 1, n - 2, ..., back to the first that knows y at its end
///   tile:    y at its end                                                                published
///   thread:  y_t = exp(g_t) y_{t-1} + x_t
///
/// Grows out of: 6_warp_shuffle.cu
/// Improves on: `warp_shuffle` walks a sequence on one multiprocessor, tile after tile.
/// Unchanged: 1024 steps of one channel per block, and the three levels within the tile.
/// Equation: y_t = exp(g_t) y_{t-1} + x_t
/// Shapes: x, y [B, H, L, D]; g [B, H, L, Dg], Dg = 1 or D; states [B, H, D]; fp32 in device memory.
/// Thread mapping: a block takes the number of its tile from a counter, so all tiles before it have already been
/// started. Thread 0 publishes and looks back, one predecessor at a time. The other threads wait at a barrier.
/// Resources: 80 bytes of shared memory, 8 registers per thread for steps; a workspace of 16 bytes per tile and
/// channel.
/// Work: 2 compositions per step, 13 more per 4 steps, and one for each predecessor that a tile looks at.
/// Bytes: x and y once, g once per channel; 16 bytes of maps per tile of 12 KB.
/// Bound by: with one long sequence, the look-back: each tile that is looked at takes a trip to the second-level cache.
/// Requires: fewer than 2^31 tiles.
/// Weakness: one thread looks back while 255 wait. With D > 1 neighbouring threads read numbers that are D apart.
/// Sources: Merrill and Garland, NVR-2016-002, section 4.

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

/// What comes before a tile > 0: the maps of its predecessors, one at a time.
__device__ Affine<float> look_back(const LookBack& back, int tile, int channel) {
  Affine<float> found;
  for (int n = tile - 1;;) {
    const Words words = back.load(n, channel, 0);
    if (words.up_to_end != kNotPublished) return compose(to_map(words.up_to_end), found);
    if (words.own == kNotPublished) {
      backoff();
      continue;
    }
    found = compose(to_map(words.own), found);
    --n;  // the first tile publishes the map up to its end
  }
}

__global__ void __launch_bounds__(kThreads) single_pass_kernel(Arguments a, LookBack back) {
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
  if (tile > 0 && thread == 0) {
    if (!is_last) store_relaxed(&back.at(tile, channel, 0).own, to_word(whole));
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

void single_pass(const Arguments& a) {
  const std::int64_t tiles = tiles_of(a, kTile);
  const LookBack back = make_look_back("scan: look-back", channels(a), 1, published_maps(a, kTile));
  launch(single_pass_kernel, {unsigned(channels(a) * tiles), kThreads}, a, back);
}

}  // namespace tutorial::scan
