/// Exercise 6.4: blocks hand on their sums
///
/// A running sum of x [tiles * 32] by one kernel: y[i] = x[0] + ... + x[i]. A block takes the next tile by a counter,
/// so tile n is started before tile n + 1. The skeleton computes the running sum within the tile. Lane 31 then waits
/// until flags[n - 1] is 1, reads ends[n - 1], the sum of all before, adds its tile's sum, writes that to ends[n] and
/// then sets flags[n] to 1. `load_acquire(&flags[i])` and `store_release(&flags[i], 1)` order a flag and what it
/// announces; a loop that waits calls `__nanosleep(100)`. Tile 0 waits for nothing.
///
/// Goal: x is read once and y is written once, with one launch and one atomic operation per tile.

#include "common/device/atomic.cuh"
#include "exercise/kernel.cuh"

static __global__ void look_back(Global<const float> x, Global<float> y, Global<float> ends, Global<unsigned> flags,
                                 Global<unsigned> counter) {
  const int lane = static_cast<int>(threadIdx.x);
  unsigned tile = lane == 0 ? atomicAdd(&counter[0], 1u) : 0u;
  tile = __shfl_sync(0xFFFFFFFFu, tile, 0);
  float sum = x[tile * 32 + threadIdx.x];
  for (int distance = 1; distance < 32; distance *= 2) {
    const float other = __shfl_up_sync(0xFFFFFFFFu, sum, distance);
    if (lane >= distance) sum += other;
  }
  float before = 0.0f;  // in lane 31: the sum of all tiles before this one
  // solution
  if (lane == 31) {
    if (tile > 0) {
      while (load_acquire(&flags[tile - 1]) == 0u) __nanosleep(100);
      before = ends[tile - 1];
    }
    ends[tile] = before + sum;
    store_release(&flags[tile], 1u);
  }
  before = __shfl_sync(0xFFFFFFFFu, before, 31);
  y[tile * 32 + threadIdx.x] = before + sum;
  // end
}

void run(Global<const float> x, Global<float> y, Global<float> ends, Global<unsigned> flags, Global<unsigned> counter,
         int tiles) {
  launch(look_back, {static_cast<unsigned>(tiles), 32}, x, y, ends, flags, counter);
}
