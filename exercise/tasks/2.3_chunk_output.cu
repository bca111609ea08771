/// Exercise 2.3: the output of a chunk
///
/// O = Q S + (Q K^T under the causal mask) V, for a chunk of 16 positions with 16 columns each. S [16, 16] is the state
/// before the chunk. One block has 16 x 16 threads; thread (x = j, y = i) has element [i][j] of everything: it loads
/// that of the four inputs into shared memory, computes that of the product of Q and K^T, for which `scores` has room,
/// and then that of O.
///
/// Goal: each input is read once and O is written once. Two barriers.

#include "exercise/kernel.cuh"

static __global__ void chunk_output(Global<const float> Q, Global<const float> K, Global<const float> V,
                                    Global<const float> S, Global<float> O) {
  __shared__ Shared<float, 16, 16> q;
  __shared__ Shared<float, 16, 16> k;
  __shared__ Shared<float, 16, 16> v;
  __shared__ Shared<float, 16, 16> s;
  __shared__ Shared<float, 16, 16> scores;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  q[i][j] = Q[i * 16 + j];
  k[i][j] = K[i * 16 + j];
  v[i][j] = V[i * 16 + j];
  s[i][j] = S[i * 16 + j];
  __syncthreads();
  float score = 0.0f;
  for (int d = 0; d < 16; ++d) score += q[i][d] * k[j][d];
  scores[i][j] = j <= i ? score : 0.0f;
  __syncthreads();
  float sum = 0.0f;
  for (int d = 0; d < 16; ++d) sum += q[i][d] * s[d][j];
  for (int t = 0; t < 16; ++t) sum += scores[i][t] * v[t][j];
  O[i * 16 + j] = sum;
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<const float> V, Global<const float> S, Global<float> O) {
  launch(chunk_output, {1, dim3(16, 16)}, Q, K, V, S, O);
}
