/// Exercise 6.2: the tree of Blelloch
///
/// An exclusive sum: y[t] = x[0] + ... + x[t - 1], for 64 numbers, by one block of 32 threads. On the way up, tile[i]
/// for i = 2 s - 1, 4 s - 1, 6 s - 1, ... becomes the sum of its last 2 s numbers, s = 1, 2, 4, ..., 32. Then the last
/// one becomes 0. On the way down, s = 32, 16, ..., 1, each of these nodes hands its value to the left, tile[i - s],
/// and keeps the sum of its value and what stood on the left. Thread p has the node i = (p + 1) 2 s - 1, if that is
/// below 64.
///
/// Goal: x is read once, y is written once. At most 14 barriers.

#include "exercise/kernel.cuh"

static __global__ void blelloch(Global<const float> x, Global<float> y) {
  __shared__ Shared<float, 64> tile;
  const int p = static_cast<int>(threadIdx.x);
  // solution
  tile[p] = x[p];
  tile[p + 32] = x[p + 32];
  for (int s = 1; s < 64; s *= 2) {
    __syncthreads();
    const int i = (p + 1) * 2 * s - 1;
    if (i < 64) tile[i] += tile[i - s];
  }
  __syncthreads();
  if (p == 0) tile[63] = 0.0f;
  for (int s = 32; s > 0; s /= 2) {
    __syncthreads();
    const int i = (p + 1) * 2 * s - 1;
    if (i < 64) {
      const float left = tile[i - s];
      tile[i - s] = tile[i];
      tile[i] += left;
    }
  }
  __syncthreads();
  y[p] = tile[p];
  y[p + 32] = tile[p + 32];
  // end
}

void run(Global<const float> x, Global<float> y) {
  launch(blelloch, {1, 32}, x, y);
}
