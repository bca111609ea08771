/// Exercise 4.3: two factors that cannot overflow
///
/// P[i][j] = sum over d of q_i[d] k_j[d] exp(b_i[d] - b_j[d]), where the rows i are the 16 positions of one sub-chunk
/// and the columns j those of all `earlier` sub-chunks before it. Between them lies a reference point: r[d], the
/// running sum at the end of the sub-chunk right before that of the rows. With b_i <= r <= b_j both exp(b_i - r) and
/// exp(r - b_j) are at most 1, so P is a product of two matrices, q~ and k~, as a tensor core wants it. Q and BQ are
/// [16, 16], K and BK are [16 earlier, 16], r is [16], P is [16, 16 earlier]; BQ holds b of the rows, BK that of the
/// columns. One block has 16 x 16 threads, thread (x = j, y = i). It computes q~ once and then k~ and P for one earlier
/// sub-chunk after the other.
///
/// Goal: every input is read once, but r once per thread. Two barriers per earlier sub-chunk.

#include "exercise/kernel.cuh"

static __global__ void reference_point(Global<const float> Q, Global<const float> BQ, Global<const float> K,
                                       Global<const float> BK, Global<const float> r, Global<float> P, int earlier) {
  __shared__ Shared<float, 16, 16> q;
  __shared__ Shared<float, 16, 16> k;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  const float reference = r[j];
  q[i][j] = Q[i * 16 + j] * expf(BQ[i * 16 + j] - reference);
  for (int n = 0; n < earlier; ++n) {
    const int element = (n * 16 + i) * 16 + j;
    k[i][j] = K[element] * expf(reference - BK[element]);
    __syncthreads();
    float sum = 0.0f;
    for (int d = 0; d < 16; ++d) sum += q[i][d] * k[j][d];
    P[(i * earlier + n) * 16 + j] = sum;
    __syncthreads();
  }
  // end
}

void run(Global<const float> Q, Global<const float> BQ, Global<const float> K, Global<const float> BK,
         Global<const float> r, Global<float> P, int earlier) {
  launch(reference_point, {1, dim3(16, 16)}, Q, BQ, K, BK, r, P, earlier);
}
