/// Exercise 3.4: the state across a chunk
///
/// S becomes diag(exp(b_15)) S + sum over i of (k_i exp(b_15 - b_i))^T v_i, for a chunk of 16 positions. b is the
/// running sum of the gates' logarithms within the chunk: the old state fades over all of it, and position i over what
/// comes after it. K and B are [16, 32], V is [16, 8], S is [32, 8]. One block has 8 x 32 threads; thread (x = j, y =
/// d) has element [d][j] of S. Keys that are faded are needed by 8 threads each: compute each of them once, into `k`.
///
/// Goal: K and V are read once, and so is S. B is read at most twice. One barrier. No exponent is positive.

#include "exercise/kernel.cuh"

static __global__ void decayed_state(Global<const float> K, Global<const float> V, Global<const float> B,
                                     Global<float> S) {
  __shared__ Shared<float, 16, 32> k;
  __shared__ Shared<float, 16, 8> v;
  __shared__ Shared<float, 32> decay;
  const int j = static_cast<int>(threadIdx.x);
  const int d = static_cast<int>(threadIdx.y);
  // solution
  const float last = B[15 * 32 + d];
  for (int i = j; i < 16; i += 8) k[i][d] = K[i * 32 + d] * expf(last - B[i * 32 + d]);
  if (j == 0) decay[d] = expf(last);
  if (d < 16) v[d][j] = V[d * 8 + j];
  __syncthreads();
  float sum = decay[d] * S[d * 8 + j];
  for (int i = 0; i < 16; ++i) sum += k[i][d] * v[i][j];
  S[d * 8 + j] = sum;
  // end
}

void run(Global<const float> K, Global<const float> V, Global<const float> B, Global<float> S) {
  launch(decayed_state, {1, dim3(8, 32)}, K, V, B, S);
}
