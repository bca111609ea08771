/// Exercise 2.1: the scores of a chunk
///
/// P[i][j] = q_i . k_j for j <= i, and 0 for j > i: the scores of a chunk of 16 positions under the causal mask. Q and
/// K are [16, width], P is [16, 16]. One block has 16 x 16 threads; thread (x = j, y = i) computes P[i][j]. The threads
/// go over the columns in pieces of 16. They load a piece of Q and K into shared memory together, one element of each
/// per thread. The last piece may have fewer columns: put zeros in place of those that do not exist.
///
/// Goal: Q and K are read once, P is written once. At most two barriers per piece of 16 columns.

#include "exercise/kernel.cuh"

static __global__ void masked_scores(Global<const float> Q, Global<const float> K, Global<float> P, int width) {
  __shared__ Shared<float, 16, 16> q;
  __shared__ Shared<float, 16, 16> k;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  float sum = 0.0f;
  for (int first = 0; first < width; first += 16) {
    const int column = first + j;
    q[i][j] = column < width ? Q[i * width + column] : 0.0f;
    k[i][j] = column < width ? K[i * width + column] : 0.0f;
    __syncthreads();
    for (int d = 0; d < 16; ++d) sum += q[i][d] * k[j][d];
    __syncthreads();
  }
  P[i * 16 + j] = j <= i ? sum : 0.0f;
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<float> P, int width) {
  launch(masked_scores, {1, dim3(16, 16)}, Q, K, P, width);
}
