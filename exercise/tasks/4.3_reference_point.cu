/// Exercise 4.3: two factors that cannot overflow
///
/// P[i][j] = sum over d of q_i[d] k_j[d] exp(b_i[d] - b_j[d]), where the rows i are the 16 positions of one sub-chunk
/// and the columns j those of the sub-chunk before it. Between them lies a reference point: r[d], the running sum at
/// the end of the earlier sub-chunk. With b_i <= r <= b_j both exp(b_i - r) and exp(r - b_j) are at most 1, so P is a
/// product of two matrices, q~ and k~, as a tensor core wants it. Q, BQ, K, BK are [16, 16], r is [16]; BQ holds b of
/// the rows, BK that of the columns. One block has 16 x 16 threads, thread (x = j, y = i).
///
/// Goal: every input is read once, but r twice per row of threads. 2 exponentials per thread. One barrier.

#include "exercise/kernel.cuh"

static __global__ void reference_point(Global<const float> Q, Global<const float> BQ, Global<const float> K,
                                       Global<const float> BK, Global<const float> r, Global<float> P) {
  __shared__ Shared<float, 16, 16> q;
  __shared__ Shared<float, 16, 16> k;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  q[i][j] = Q[i * 16 + j] * expf(BQ[i * 16 + j] - r[j]);
  k[i][j] = K[i * 16 + j] * expf(r[j] - BK[i * 16 + j]);
  __syncthreads();
  float sum = 0.0f;
  for (int d = 0; d < 16; ++d) sum += q[i][d] * k[j][d];
  P[i * 16 + j] = sum;
  // end
}

void run(Global<const float> Q, Global<const float> BQ, Global<const float> K, Global<const float> BK,
         Global<const float> r, Global<float> P) {
  launch(reference_point, {1, dim3(16, 16)}, Q, BQ, K, BK, r, P);
}
