/// Exercise 3.1: the gated recurrence
///
/// S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t and o_t = q_t S_t, for one head. Q, K and G are [length, 32], V and O are
/// [length, 32]. G holds the logarithms of the gates, natural ones. `initial` is S_{-1}, [32, 32]. Thread j has column
/// j of the state in registers. Row d of the state has the gate exp(G[t * 32 + d]): thread d loads and computes it for
/// all threads, so that there is one exponential per gate.
///
/// Goal: every input is read once. At most two barriers per position.

#include "exercise/kernel.cuh"

static __global__ void gated_column(Global<const float> Q, Global<const float> K, Global<const float> V,
                                    Global<const float> G, Global<const float> initial, Global<float> O, int length) {
  __shared__ Shared<float, 32> q;
  __shared__ Shared<float, 32> k;
  __shared__ Shared<float, 32> gate;
  const int j = static_cast<int>(threadIdx.x);
  float state[32];
  // solution
  for (int d = 0; d < 32; ++d) state[d] = initial[d * 32 + j];
  for (int t = 0; t < length; ++t) {
    q[j] = Q[t * 32 + j];
    k[j] = K[t * 32 + j];
    gate[j] = expf(G[t * 32 + j]);
    __syncthreads();
    const float v = V[t * 32 + j];
    float sum = 0.0f;
    for (int d = 0; d < 32; ++d) {
      state[d] = gate[d] * state[d] + k[d] * v;
      sum += q[d] * state[d];
    }
    O[t * 32 + j] = sum;
    __syncthreads();
  }
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<const float> V, Global<const float> G,
         Global<const float> initial, Global<float> O, int length) {
  launch(gated_column, {1, 32}, Q, K, V, G, initial, O, length);
}
