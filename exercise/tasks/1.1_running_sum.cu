/// Exercise 1.1: a running sum by one block
///
/// y[t] = x[0] + x[1] + ... + x[t], for t < length, by one block of 128 threads; length is at most 128. Thread t holds
/// x[t]. In the first round it adds the value of thread t - 1, in the second that of thread t - 2, then t - 4, 8, ...:
/// after 7 rounds it has the sum of all values up to its own. The threads show each other their values in `tile`.
///
/// Goal: each element of x is read once and each element of y is written once. At most 14 barriers.

#include "exercise/kernel.cuh"

static __global__ void running_sum(Global<const float> x, Global<float> y, int length) {
  __shared__ Shared<float, 128> tile;
  const int t = static_cast<int>(threadIdx.x);
  // solution
  float sum = t < length ? x[t] : 0.0f;
  for (int distance = 1; distance < 128; distance *= 2) {
    tile[t] = sum;
    __syncthreads();
    if (t >= distance) sum += tile[t - distance];
    __syncthreads();
  }
  if (t < length) y[t] = sum;
  // end
}

void run(Global<const float> x, Global<float> y, int length) {
  launch(running_sum, {1, 128}, x, y, length);
}
