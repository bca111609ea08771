/// Exercise 1.3: a dot product by one warp
///
/// y[r] = sum over d of A[r * width + d] B[r * width + d]: one dot product per row, as q_t with a column of the state.
/// Each row has a block of one warp. Lane l adds up the elements d = l, l + 32, l + 64, ... Then the lanes add up their
/// 32 sums: in each of five rounds a lane gets another lane's sum by `__shfl_xor_sync` and adds it.
///
/// Goal: no barrier and no shared memory. Each input is read once and each y[r] is written once.

#include "exercise/kernel.cuh"

static __global__ void warp_dot(Global<const float> A, Global<const float> B, Global<float> y, int width) {
  const int row = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x);
  float sum = 0.0f;
  // solution
  for (int d = lane; d < width; d += 32) sum += A[row * width + d] * B[row * width + d];
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, distance);
  if (lane == 0) y[row] = sum;
  // end
}

void run(Global<const float> A, Global<const float> B, Global<float> y, int rows, int width) {
  launch(warp_dot, {static_cast<unsigned>(rows), 32}, A, B, y, width);
}
