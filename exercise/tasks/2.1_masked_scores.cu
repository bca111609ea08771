/// Exercise 2.1: the scores of a chunk
///
/// P[i][j] = q_i . k_j for j <= i, and 0 for j > i: the scores of a chunk of 16 positions under the causal mask. Q and
/// K are [16, width], P is [16, 16]. One block has 16 x 16 threads; thread (x = j, y = i) computes P[i][j]. The threads
/// first load pieces of 16 columns of Q and K into shared memory together, one element of each per thread.
///
/// Goal: Q and K are read once, P is written once. At most two barriers per piece of 16 columns.

#include "exercise/kernel.cuh"

static __global__ void masked_scores(Global<const float> Q, Global<const float> K, Global<float> P, int width) {
  __shared__ Shared<float, 16, 16> q;
  __shared__ Shared<float, 16, 16> k;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  float sum = 0.0f;
  for (int first = 0; first < width; first += 16) {  // a piece: columns first to first + 15; 16 divides width
    // solution
    q[i][j] = Q[i * width + first + j];
    k[i][j] = K[i * width + first + j];
    __syncthreads();
    for (int d = 0; d < 16; ++d) sum += q[i][d] * k[j][d];
    __syncthreads();
    // end
  }
  // solution
  P[i * 16 + j] = j <= i ? sum : 0.0f;
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<float> P, int width) {
  launch(masked_scores, {1, dim3(16, 16)}, Q, K, P, width);
}
