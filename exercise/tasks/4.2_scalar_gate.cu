/// Exercise 4.2: scores with a scalar gate
///
/// P[i][j] = exp(b_i - b_j) P[i][j] for j <= i, and 0 for j > i, in place, for a chunk of 32 positions with one gate
/// each. b is the running sum of g, which is [32]. One block has 32 x 32 threads, thread (x = j, y = i). Each warp, a
/// row i, computes b for itself: lane j starts with g[j], and in five rounds of `__shfl_up_sync` gets the sum of g[0]
/// to g[j]. Then it needs b_i, which lane i has.
///
/// Goal: no barrier and no shared memory. P is read at most once and written once. g is read once per row. A mask of 0
/// times infinity is NaN: gates may be as small as exp(-50).

#include "exercise/kernel.cuh"

static __global__ void scalar_gate(Global<const float> g, Global<float> P) {
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  float b = g[j];
  for (int distance = 1; distance < 32; distance *= 2) {
    const float other = __shfl_up_sync(0xFFFFFFFFu, b, distance);
    if (j >= distance) b += other;
  }
  const float b_i = __shfl_sync(0xFFFFFFFFu, b, i);
  if (j <= i) {
    P[i * 32 + j] *= expf(b_i - b);
  } else {
    P[i * 32 + j] = 0.0f;
  }
  // end
}

void run(Global<const float> g, Global<float> P) {
  launch(scalar_gate, {1, dim3(32, 32)}, g, P);
}
