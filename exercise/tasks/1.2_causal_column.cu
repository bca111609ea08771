/// Exercise 1.2: one thread per column of the causal product
///
/// o_t = q_t S_t with S_t = S_{t-1} + k_t^T v_t, and S is 0 before the first position: the recurrent form of causal
/// linear attention, for one head. Q and K are [length, 32], V and O are [length, 32], row after row: Q[t * 32 + d].
/// One block has 32 threads. Thread j keeps column j of S, 32 numbers, in registers, and writes O[t * 32 + j]. The rows
/// q_t and k_t, which all threads need, come through `q` and `k` in shared memory: thread j loads element j of both.
///
/// Goal: every input is read once and O is written once. At most two barriers per position.

#include "exercise/kernel.cuh"

static __global__ void causal_column(Global<const float> Q, Global<const float> K, Global<const float> V,
                                     Global<float> O, int length) {
  __shared__ Shared<float, 32> q;
  __shared__ Shared<float, 32> k;
  const int j = static_cast<int>(threadIdx.x);
  float state[32] = {};
  // solution
  for (int t = 0; t < length; ++t) {
    q[j] = Q[t * 32 + j];
    k[j] = K[t * 32 + j];
    __syncthreads();
    const float v = V[t * 32 + j];
    float sum = 0.0f;
    for (int d = 0; d < 32; ++d) {
      state[d] += k[d] * v;
      sum += q[d] * state[d];
    }
    O[t * 32 + j] = sum;
    __syncthreads();
  }
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<const float> V, Global<float> O, int length) {
  launch(causal_column, {1, 32}, Q, K, V, O, length);
}
