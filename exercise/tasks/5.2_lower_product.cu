/// Exercise 5.2: which keys overlap
///
/// A[i][j] = beta_i k_i . k_j for j < i, and 0 for j >= i: the strictly lower matrix of a chunk of 16 positions. The
/// chunk's scores have the same right factor: P[i][j] = q_i . k_j for j <= i, and 0 for j > i. A position corrects what
/// came before it, not itself; but its query meets its own key, too. Q and K are [16, 32], beta is [16], A and P are
/// [16, 16]. One block has 16 x 16 threads, thread (x = j, y = i).
///
/// Goal: Q and K are read once, A and P are written once. beta is read once per element of A at most. One barrier.

#include "exercise/kernel.cuh"

static __global__ void lower_product(Global<const float> Q, Global<const float> K, Global<const float> beta,
                                     Global<float> A, Global<float> P) {
  __shared__ Shared<float, 16, 32> q;
  __shared__ Shared<float, 16, 32> k;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  for (int d = j; d < 32; d += 16) {
    q[i][d] = Q[i * 32 + d];
    k[i][d] = K[i * 32 + d];
  }
  __syncthreads();
  float overlap = 0.0f;
  float score = 0.0f;
  for (int d = 0; d < 32; ++d) {
    overlap += k[i][d] * k[j][d];
    score += q[i][d] * k[j][d];
  }
  A[i * 16 + j] = j < i ? beta[i] * overlap : 0.0f;
  P[i * 16 + j] = j <= i ? score : 0.0f;
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<const float> beta, Global<float> A, Global<float> P) {
  launch(lower_product, {1, dim3(16, 16)}, Q, K, beta, A, P);
}
