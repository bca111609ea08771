/// Exercise 1.1: a running sum by one block
///
/// y[i] = x[0] + x[1] + ... + x[i], for i < length, by one block of 128 threads. The block goes over x in pieces of 128
/// numbers; the last piece may have fewer. Thread t holds number t of a piece. In the first round it adds the value of
/// thread t - 1, in the second that of thread t - 2, then t - 4, 8, ...: after 7 rounds it has the sum of the piece up
/// to its own number. The threads show each other their values in `tile`. y gets this sum and that of all pieces before
/// it. So every thread has to learn the sum of the whole piece, which thread 127 has, before the next piece begins.
///
/// Goal: each element of x is read once and each element of y is written once. At most 16 barriers per piece.

#include "exercise/kernel.cuh"

static __global__ void running_sum(Global<const float> x, Global<float> y, int length) {
  __shared__ Shared<float, 128> tile;
  const int t = static_cast<int>(threadIdx.x);
  // solution
  float before = 0.0f;
  for (int first = 0; first < length; first += 128) {
    const int i = first + t;
    float sum = i < length ? x[i] : 0.0f;
    for (int distance = 1; distance < 128; distance *= 2) {
      tile[t] = sum;
      __syncthreads();
      if (t >= distance) sum += tile[t - distance];
      __syncthreads();
    }
    if (i < length) y[i] = before + sum;
    tile[t] = sum;
    __syncthreads();
    before += tile[127];
    __syncthreads();
  }
  // end
}

void run(Global<const float> x, Global<float> y, int length) {
  launch(running_sum, {1, 128}, x, y, length);
}
