/// Exercise 6.3: a scan with maximum for sum
///
/// y_t = max(y_{t-1} + g_t, x_t) with y_{-1} = -infinity: the scan of chapter 06 with max in place of + and + in place
/// of times. It is the best score of any path that starts at a step i <= t with x_i and then collects g_{i+1} to g_t.
/// One block of 64 threads, length at most 64; thread t has step t. The map of a step is y -> max(y + g, x), and maps
/// compose: in the round of distance d, thread t puts its map after that of thread t - d. They show each other their
/// maps in `gs` and `xs`.
///
/// Goal: six rounds with two barriers each. Each input is read once.

#include "exercise/kernel.cuh"

static __global__ void tropical(Global<const float> g, Global<const float> x, Global<float> y, int length) {
  __shared__ Shared<float, 64> gs;
  __shared__ Shared<float, 64> xs;
  const int t = static_cast<int>(threadIdx.x);
  float sum = t < length ? g[t] : 0.0f;
  float best = t < length ? x[t] : 0.0f;
  // solution
  for (int distance = 1; distance < 64; distance *= 2) {
    gs[t] = sum;
    xs[t] = best;
    __syncthreads();
    if (t >= distance) {
      best = fmaxf(xs[t - distance] + sum, best);
      sum += gs[t - distance];
    }
    __syncthreads();
  }
  if (t < length) y[t] = best;
  // end
}

void run(Global<const float> g, Global<const float> x, Global<float> y, int length) {
  launch(tropical, {1, 64}, g, x, y, length);
}
