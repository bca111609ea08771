/// Exercise 4.6: the gradient of q, from the same walk
///
/// dq_t = do_t S_t^T: element d of dq_t is the dot product of do_t with row d of the state, S_t = S_{t-1} + k_t^T v_t.
/// So now thread d keeps row d of S in registers, and the rows do_t and v_t come through shared memory. K, V, dO and dQ
/// are [length, 32]. One block has 32 threads.
///
/// Goal: every input is read once and dQ is written once. At most two barriers per position. No shuffles and no
/// atomics.

#include "exercise/kernel.cuh"

static __global__ void gradient_of_q(Global<const float> K, Global<const float> V, Global<const float> dO,
                                     Global<float> dQ, int length) {
  __shared__ Shared<float, 32> v;
  __shared__ Shared<float, 32> d_o;
  const int d = static_cast<int>(threadIdx.x);
  float row[32] = {};
  // solution
  for (int t = 0; t < length; ++t) {
    v[d] = V[t * 32 + d];
    d_o[d] = dO[t * 32 + d];
    __syncthreads();
    const float k = K[t * 32 + d];
    float sum = 0.0f;
    for (int j = 0; j < 32; ++j) {
      row[j] += k * v[j];
      sum += d_o[j] * row[j];
    }
    dQ[t * 32 + d] = sum;
    __syncthreads();
  }
  // end
}

void run(Global<const float> K, Global<const float> V, Global<const float> dO, Global<float> dQ, int length) {
  launch(gradient_of_q, {1, 32}, K, V, dO, dQ, length);
}
