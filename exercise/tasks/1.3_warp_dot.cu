/// Exercise 1.3: a dot product by one warp
///
/// y[r] is the dot product of row r of A with row r of B, divided by the length of row r of B: the score of a query and
/// a key that is scaled to length 1, as chapter 05 needs it. Element d of row r is A[r * width + d]. Each row has a
/// block of one warp. Lane l adds up products and squares of the elements d = l, l + 32, l + 64, ... Then the lanes add
/// up their 32 sums of each kind: in each of five rounds a lane gets another lane's sum by `__shfl_xor_sync` and adds
/// it.
///
/// Goal: no barrier and no shared memory. Each input is read once and each y[r] is written once.

#include "exercise/kernel.cuh"

static __global__ void warp_dot(Global<const float> A, Global<const float> B, Global<float> y, int width) {
  const int row = static_cast<int>(blockIdx.x);
  const int lane = static_cast<int>(threadIdx.x);
  // solution
  float dot = 0.0f;
  float squares = 0.0f;
  for (int d = lane; d < width; d += 32) {
    const float b = B[row * width + d];
    dot += A[row * width + d] * b;
    squares += b * b;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    dot += __shfl_xor_sync(0xFFFFFFFFu, dot, distance);
    squares += __shfl_xor_sync(0xFFFFFFFFu, squares, distance);
  }
  if (lane == 0) y[row] = dot / sqrtf(squares);
  // end
}

void run(Global<const float> A, Global<const float> B, Global<float> y, int rows, int width) {
  launch(warp_dot, {static_cast<unsigned>(rows), 32}, A, B, y, width);
}
