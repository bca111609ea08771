/// Exercise 6.1: a scan of maps by one warp
///
/// y_t = a_t y_{t-1} + x_t with y_{-1} = 0, for sequences of 32 steps, one warp per sequence. A step is the map y -> a
/// y + x. Lane t starts with the map of step t. After the round of distance d = 1, 2, 4, 8, 16 it has the map of its
/// last 2d steps: its own map after that of lane t - d, which `__shfl_up_sync` brings. At the end y_t is the map of
/// lane t, applied to 0. a and x are [sequences, 32].
///
/// Goal: five rounds of two shuffles, no barrier. Each input is read once.

#include "exercise/kernel.cuh"

static __global__ void warp_affine(Global<const float> a, Global<const float> x, Global<float> y) {
  const int lane = static_cast<int>(threadIdx.x);
  const int element = static_cast<int>(blockIdx.x) * 32 + lane;
  // solution
  float factor = a[element];
  float addend = x[element];
  for (int distance = 1; distance < 32; distance *= 2) {
    const float other_factor = __shfl_up_sync(0xFFFFFFFFu, factor, distance);
    const float other_addend = __shfl_up_sync(0xFFFFFFFFu, addend, distance);
    if (lane >= distance) {
      addend += factor * other_addend;
      factor *= other_factor;
    }
  }
  y[element] = addend;
  // end
}

void run(Global<const float> a, Global<const float> x, Global<float> y, int sequences) {
  launch(warp_affine, {static_cast<unsigned>(sequences), 32}, a, x, y);
}
