/// Exercise 3.3: scores in log space
///
/// P[i][j] = sum over d of q_i[d] k_j[d] exp(b_i[d] - b_j[d]) for j <= i, and 0 for j > i: the scores of a block of 16
/// positions with gates. b is the running sum of the gates' logarithms, which may fall to -1000 within the block. The
/// last block of a sequence has only `positions` of the 16: Q, K and B are [positions, 16]. P is [16, 16] always, with
/// zeros in the rows that have no position. One block of 16 x 16 threads; thread (x = j, y = i) loads element [i][j] of
/// the inputs into shared memory and computes P[i][j].
///
/// Goal: no overflow and no 0 * infinity, whatever the gates. Each input is read once, P is written once. One barrier.

#include "exercise/kernel.cuh"

static __global__ void log_space_scores(Global<const float> Q, Global<const float> K, Global<const float> B,
                                        Global<float> P, int positions) {
  __shared__ Shared<float, 16, 16> q;
  __shared__ Shared<float, 16, 16> k;
  __shared__ Shared<float, 16, 16> b;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  if (i < positions) {
    q[i][j] = Q[i * 16 + j];
    k[i][j] = K[i * 16 + j];
    b[i][j] = B[i * 16 + j];
  }
  __syncthreads();
  float sum = 0.0f;
  if (j <= i && i < positions) {
    for (int d = 0; d < 16; ++d) sum += q[i][d] * k[j][d] * expf(b[i][d] - b[j][d]);
  }
  P[i * 16 + j] = sum;
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<const float> B, Global<float> P, int positions) {
  launch(log_space_scores, {1, dim3(16, 16)}, Q, K, B, P, positions);
}
