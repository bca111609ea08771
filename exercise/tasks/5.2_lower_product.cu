/// Exercise 5.2: which keys overlap
///
/// A[i][j] = beta_i k_i . k_j for j < i, and 0 for j >= i: the strictly lower matrix of a chunk of 16 positions. K is
/// [16, 32], beta is [16], A is [16, 16]. One block has 16 x 16 threads, thread (x = j, y = i).
///
/// Goal: K is read once and A is written once. beta is read once per element of A at most. One barrier.

#include "exercise/kernel.cuh"

static __global__ void lower_product(Global<const float> K, Global<const float> beta, Global<float> A) {
  __shared__ Shared<float, 16, 32> k;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  k[i][j] = K[i * 32 + j];
  k[i][j + 16] = K[i * 32 + j + 16];
  __syncthreads();
  float sum = 0.0f;
  for (int d = 0; d < 32; ++d) sum += k[i][d] * k[j][d];
  A[i * 16 + j] = j < i ? beta[i] * sum : 0.0f;
  // end
}

void run(Global<const float> K, Global<const float> beta, Global<float> A) {
  launch(lower_product, {1, dim3(16, 16)}, K, beta, A);
}
