/// Exercise 6.7: a warp looks back at 32 tiles at once
///
/// The running sum of exercise 6.4, y[i] = x[0] + ... + x[i], by tiles of 32 numbers. Each of the 4 warps of a block
/// takes a tile. A tile does not wait for the tile before it to be done. It announces twice. As soon as it knows the
/// sum of its own numbers, it writes that to own[n] and sets flags[n] to 1. Later it knows the sum up to its end,
/// writes that to ends[n] and sets flags[n] to 2. To learn what comes before tile n, lane l looks at tile n - 1 - l: it
/// waits until the flag there is not 0. (Before tile 0 there is nothing, a sum of 0 that is known.) The nearest tile
/// with a 2 is enough: its `ends` and the `own` of all tiles between it and tile n add up to the sum before tile n. If
/// none of the 32 tiles has a 2, all 32 `own` are added, and the warp goes on with the 32 tiles before.
/// `load_acquire(&flags[i])` and `store_release(&flags[i], 1)` order a flag and what it announces; a loop that waits
/// calls `__nanosleep(100)`.
///
/// The skeleton takes a tile by a counter and computes the running sum within it. `warp_sum(value)` gives all lanes the
/// sum over the lanes. In some problems the counter begins at a tile > 0: those before it belong to blocks that are
/// under way, and have announced once or twice.
///
/// Goal: right whatever the tiles before have announced. Each tile announces twice. x is read once and y is written
/// once, with one launch and one atomic operation per warp.

#include "common/device/atomic.cuh"
#include "exercise/kernel.cuh"

static __device__ float warp_sum(float value) {
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(0xFFFFFFFFu, value, distance);
  return value;
}

static __global__ void look_back_window(Global<const float> x, Global<float> y, Global<float> own, Global<float> ends,
                                        Global<unsigned> flags, Global<unsigned> counter, int tiles) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned taken = lane == 0 ? atomicAdd(&counter[0], 1u) : 0u;
  const int tile = static_cast<int>(__shfl_sync(0xFFFFFFFFu, taken, 0));
  if (tile >= tiles) return;
  float sum = x[tile * 32 + lane];
  for (int distance = 1; distance < 32; distance *= 2) {
    const float other = __shfl_up_sync(0xFFFFFFFFu, sum, distance);
    if (lane >= distance) sum += other;
  }
  float before = 0.0f;  // the sum of all tiles before this one
  // solution
  if (lane == 31) {
    own[tile] = sum;
    store_release(&flags[tile], 1u);
  }
  unsigned known = 0;  // a bit for each lane that has found a 2
  for (int newest = tile - 1; known == 0u; newest -= 32) {
    const int n = newest - lane;
    unsigned flag = 2u;  // of nothing
    if (n >= 0) {
      while ((flag = load_acquire(&flags[n])) == 0u) __nanosleep(100);
    }
    known = __ballot_sync(0xFFFFFFFFu, flag == 2u);
    const int nearest = known == 0u ? 32 : __ffs(static_cast<int>(known)) - 1;
    float part = 0.0f;
    if (lane < nearest) part = own[n];
    if (n >= 0 && lane == nearest) part = ends[n];
    before += warp_sum(part);
  }
  if (lane == 31) {
    ends[tile] = before + sum;
    store_release(&flags[tile], 2u);
  }
  y[tile * 32 + lane] = before + sum;
  // end
}

void run(Global<const float> x, Global<float> y, Global<float> own, Global<float> ends, Global<unsigned> flags,
         Global<unsigned> counter, int first, int tiles) {
  const auto blocks = static_cast<unsigned>((tiles - first + 3) / 4);
  launch(look_back_window, {blocks, 128}, x, y, own, ends, flags, counter, tiles);
}
