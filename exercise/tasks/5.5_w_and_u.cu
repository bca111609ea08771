/// Exercise 5.5: W and U
///
/// W = T diag(beta) K and U = T diag(beta) V for a chunk of 16 positions: with them a chunk takes the state S to S +
/// K^T (U - W S). T is [16, 16] and lower, beta is [16], K, V, W and U are [16, 16]. One block has 16 x 16 threads,
/// thread (x = j, y = i) has element [i][j] of each matrix.
///
/// Goal: each input is read once (beta at most 16 times), W and U are written once. One barrier.

#include "exercise/kernel.cuh"

static __global__ void w_and_u(Global<const float> T, Global<const float> beta, Global<const float> K,
                               Global<const float> V, Global<float> W, Global<float> U) {
  __shared__ Shared<float, 16, 16> t;
  __shared__ Shared<float, 16, 16> k;
  __shared__ Shared<float, 16, 16> v;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  t[i][j] = T[i * 16 + j] * beta[j];
  k[i][j] = K[i * 16 + j];
  v[i][j] = V[i * 16 + j];
  __syncthreads();
  float w = 0.0f;
  float u = 0.0f;
  for (int p = 0; p < 16; ++p) {
    w += t[i][p] * k[p][j];
    u += t[i][p] * v[p][j];
  }
  W[i * 16 + j] = w;
  U[i * 16 + j] = u;
  // end
}

void run(Global<const float> T, Global<const float> beta, Global<const float> K, Global<const float> V, Global<float> W,
         Global<float> U) {
  launch(w_and_u, {1, dim3(16, 16)}, T, beta, K, V, W, U);
}
