/// Exercise 6.6: four steps per lane
///
/// y_t = a_t y_{t-1} + x_t with y_{-1} = 0 for one sequence of 128 steps, by one warp. Lane l has steps 4 l to 4 l + 3.
/// It first composes the maps of its four steps in registers, one after the other. Then the warp scans these maps
/// (exercise 6.1; `scan` does it, and gives each lane the addend of all steps before its own: what y is there). At last
/// each lane goes over its steps again and writes y.
///
/// Goal: a and x are read once: keep your four steps in registers. No barrier.

#include "exercise/kernel.cuh"

/// y before the first step of this lane. @param factor,addend the map of the lane's own steps, y -> factor y + addend
static __device__ float scan(float factor, float addend) {
  const int lane = static_cast<int>(threadIdx.x);
  for (int distance = 1; distance < 32; distance *= 2) {
    const float other_factor = __shfl_up_sync(0xFFFFFFFFu, factor, distance);
    const float other_addend = __shfl_up_sync(0xFFFFFFFFu, addend, distance);
    if (lane >= distance) {
      addend += factor * other_addend;
      factor *= other_factor;
    }
  }
  const float before = __shfl_up_sync(0xFFFFFFFFu, addend, 1);
  return lane > 0 ? before : 0.0f;
}

static __global__ void steps_per_lane(Global<const float> a, Global<const float> x, Global<float> y) {
  const int first = static_cast<int>(threadIdx.x) * 4;
  float factors[4];
  float addends[4];
  // solution
  float factor = 1.0f;
  float addend = 0.0f;
  for (int i = 0; i < 4; ++i) {
    factors[i] = a[first + i];
    addends[i] = x[first + i];
    addend = factors[i] * addend + addends[i];
    factor *= factors[i];
  }
  float state = scan(factor, addend);
  for (int i = 0; i < 4; ++i) {
    state = factors[i] * state + addends[i];
    y[first + i] = state;
  }
  // end
}

void run(Global<const float> a, Global<const float> x, Global<float> y) {
  launch(steps_per_lane, {1, 32}, a, x, y);
}
