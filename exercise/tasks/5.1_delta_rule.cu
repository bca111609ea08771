/// Exercise 5.1: the delta rule, one thread per column
///
/// S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1}) and o_t = q_t S_t, with S_{-1} = 0. The state answers k_t S_{t-1}
/// to key k_t; the rule writes the difference to v_t. Q, K and V are [length, 32], beta is [length], O is [length, 32].
/// Thread j has column j of S in registers; rows q_t and k_t come through shared memory.
///
/// Goal: Q, K and V are read once. At most two barriers per position.

#include "exercise/kernel.cuh"

static __global__ void delta_column(Global<const float> Q, Global<const float> K, Global<const float> V,
                                    Global<const float> beta, Global<float> O, int length) {
  __shared__ Shared<float, 32> q;
  __shared__ Shared<float, 32> k;
  const int j = static_cast<int>(threadIdx.x);
  float state[32] = {};
  // solution
  for (int t = 0; t < length; ++t) {
    q[j] = Q[t * 32 + j];
    k[j] = K[t * 32 + j];
    __syncthreads();
    float held = 0.0f;
    for (int d = 0; d < 32; ++d) held += k[d] * state[d];
    const float residual = beta[t] * (V[t * 32 + j] - held);
    float sum = 0.0f;
    for (int d = 0; d < 32; ++d) {
      state[d] += k[d] * residual;
      sum += q[d] * state[d];
    }
    O[t * 32 + j] = sum;
    __syncthreads();
  }
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<const float> V, Global<const float> beta, Global<float> O,
         int length) {
  launch(delta_column, {1, 32}, Q, K, V, beta, O, length);
}
