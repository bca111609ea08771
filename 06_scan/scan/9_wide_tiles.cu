/// @file
/// `wide_tiles`: tiles of 8192 steps wait in shared memory and are loaded 16 bytes at a time.
///
/// Idea: while a tile looks back, its steps wait on the chip. The more steps wait on the chip or are in flight, the
/// busier the memory is. Shared memory has room for more steps than the registers that `warp_look_back` uses. So a warp
/// copies 512 steps to shared memory, all of them before it uses the first, and its lanes process them in 4 turns. In
/// each turn a lane has 4 neighbouring steps, 16 bytes. The map of a turn begins where the turn before ended, in
/// registers. No lane reads what another lane has copied, so there is no transposition, no bank conflict and no barrier
/// between copy and use.
///
///   turn 0    lane 0: steps 0 to 3      lane 1: 4 to 7       ...   lane 31: 124 to 127       of a warp's 512
///   turn 1    lane 0: 128 to 131        lane 1: 132 to 135   ...   lane 31: 252 to 255
///
/// Grows out of: 8_warp_look_back.cu
/// Improves on: `warp_look_back` looks back once per 1024 steps and has only 8 KB of loads in flight per block.
/// Unchanged: what tiles publish, and how a warp looks back.
/// Equation: y_t = exp(g_t) y_{t-1} + x_t
/// Shapes: x, g, y [B, H, L, 1]; states [B, H, 1]; fp32 in device memory.
/// Thread mapping: a block has 16 warps and a tile of 8192 steps; a warp has 512 of them, a lane 4 in each of 4 turns.
/// Resources: 64 KB of shared memory, so three blocks per multiprocessor with 192 KB of steps in flight or waiting. A
/// workspace of 16 bytes per tile.
/// Work: 2 compositions per step, and 28 more per thread for its 16 steps.
/// Bytes: x, g and y once; 16 bytes of maps per tile of 96 KB.
/// Bound by: memory.
/// Requires: D = 1; L a multiple of 4 and sequences aligned to 16 bytes.
/// Weakness: the layout that it requires. A sequence of a few hundred steps leaves most of a tile empty.
/// Sources: Merrill and Garland, NVR-2016-002, section 4.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/scan/look_back.cuh"
#include "06_scan/scan/look_back_tiles.hpp"
#include "06_scan/scan/warp_scan.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::scan {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kSteps = 4;  // of a thread and turn
constexpr int kTurns = 4, kTile = kThreads * kSteps * kTurns;
static_assert(kTile == kWideTile);

/// Neighbouring steps, copied, read and written at once.
struct alignas(16) Steps {
  float of[kSteps];
};

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

__global__ void __launch_bounds__(kThreads) wide_tiles_kernel(Arguments a, LookBack back) {
  __shared__ Affine<float> totals[kWarps];
  __shared__ float y_before;
  __shared__ int taken_tile;
  const int thread = int(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (thread == 0) taken_tile = back.take_tile();
  __syncthreads();
  const int tile = taken_tile / back.chains, channel = taken_tile % back.chains, t0 = tile * kTile;
  const int h = channel % a.H, b = channel / a.H;
  const int t_lane = t0 + (warp * 32 * kTurns + lane) * kSteps;  // the lane's first step of turn 0

  Steps* const x = dynamic_shared<Steps>() + thread;
  Steps* const g = x + kTurns * kThreads;
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int t = t_lane + turn * 32 * kSteps;
    cp_async<sizeof(Steps)>(&x[turn * kThreads], a.x.row(b, h, t), t < a.L);  // zeros, an identity, past the end
    cp_async<sizeof(Steps)>(&g[turn * kThreads], a.log_decay.row(b, h, t), t < a.L);
  }
  cp_async_commit();
  cp_async_wait<0>();
  Affine<float> below[kTurns], turns;  // the steps of the warp below this lane's, in each turn; all turns so far
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const Steps x_turn = x[turn * kThreads], g_turn = g[turn * kThreads];
    Affine<float> own;
#pragma unroll
    for (int i = 0; i < kSteps; ++i) own = compose(own, {g_turn.of[i], x_turn.of[i]});
    const Affine<float> lanes = warp_scan(own);
    below[turn] = compose(turns, map_below(lanes, 1));
    turns = compose(turns, map_of_lane(lanes, 31));
  }
  if (lane == 31) totals[warp] = turns;
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
    if (tile == 0 && a.initial_state.data) before.value = load_global(a.initial_state.row(b, h, 0));
    const Affine<float> end = compose(before, whole);
    if (!is_last) {
      store_relaxed(&back.at(tile, channel, 0).up_to_end, to_word(end));
    } else {
      if (a.final_state.data) store_global(a.final_state.row(b, h, 0), end.value);
      if (a.final_log_decay.data) store_global(a.final_log_decay.row(b, h, 0), end.log_decay);
    }
    y_before = before.value;
  }
  __syncthreads();
  const float y_warp = apply(warps_below, y_before);
#pragma unroll
  for (int turn = 0; turn < kTurns; ++turn) {
    const int t = t_lane + turn * 32 * kSteps;
    const Steps x_turn = x[turn * kThreads], g_turn = g[turn * kThreads];
    float y = apply(below[turn], y_warp);
    float4 result;
    result.x = y = apply({g_turn.of[0], x_turn.of[0]}, y);
    result.y = y = apply({g_turn.of[1], x_turn.of[1]}, y);
    result.z = y = apply({g_turn.of[2], x_turn.of[2]}, y);
    result.w = y = apply({g_turn.of[3], x_turn.of[3]}, y);
    if (t < a.L) store_global(reinterpret_cast<float4*>(a.y.row(b, h, t)), result);
  }
}

}  // namespace

void wide_tiles(const Arguments& a) {
  const std::int64_t tiles = tiles_of(a, kTile);
  const LookBack back = make_look_back("scan: look-back", channels(a), 1, published_maps(a, kTile));
  constexpr std::size_t kSharedBytes = 2 * kTurns * kThreads * sizeof(Steps);
  launch(wide_tiles_kernel, {unsigned(channels(a) * tiles), kThreads, kSharedBytes}, a, back);
}

}  // namespace tutorial::scan
