/// Exercise 1.5: one barrier per position
///
/// The causal product of exercise 1.2 once more: thread j keeps column j of the state and writes O[t * 32 + j], and
/// rows of Q and K come through shared memory. Now `q` and `k` have two rows each. While slow threads still read row t
/// in one of them, fast threads may already fill the other with row t + 1. So one barrier per position is enough.
///
/// Goal: every input is read once. At most one barrier per position.

#include "exercise/kernel.cuh"

static __global__ void two_buffers(Global<const float> Q, Global<const float> K, Global<const float> V, Global<float> O,
                                   int length) {
  __shared__ Shared<float, 2, 32> q;
  __shared__ Shared<float, 2, 32> k;
  const int j = static_cast<int>(threadIdx.x);
  float state[32] = {};
  // solution
  for (int t = 0; t < length; ++t) {
    const int buffer = t % 2;
    q[buffer][j] = Q[t * 32 + j];
    k[buffer][j] = K[t * 32 + j];
    __syncthreads();
    const float v = V[t * 32 + j];
    float sum = 0.0f;
    for (int d = 0; d < 32; ++d) {
      state[d] += k[buffer][d] * v;
      sum += q[buffer][d] * state[d];
    }
    O[t * 32 + j] = sum;
  }
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<const float> V, Global<float> O, int length) {
  launch(two_buffers, {1, 32}, Q, K, V, O, length);
}
