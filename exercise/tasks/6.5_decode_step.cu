/// Exercise 6.5: one token
///
/// Decoding: S becomes diag(exp(g)) S + k^T v, and o = q S, for one new token. q, k and g are [key_dim], v and o are
/// [32], S is [key_dim, 32] in device memory. One block has 32 x 8 threads; thread (x = j, y = part) has rows part,
/// part + 8, part + 16, ... of column j. The eight sums of a column come together in `sums`; thread (j, 0) adds them up
/// in any order.
///
/// Goal: S is read once and written once: that is all the time of a decoding step. q, k and g are read once per column
/// at most. One barrier.

#include "exercise/kernel.cuh"

static __global__ void decode_step(Global<const float> q, Global<const float> k, Global<const float> v,
                                   Global<const float> g, Global<float> S, Global<float> o, int key_dim) {
  __shared__ Shared<float, 8, 32> sums;
  const int j = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(threadIdx.y);
  // solution
  const float value = v[j];
  float sum = 0.0f;
  for (int d = part; d < key_dim; d += 8) {
    const float state = expf(g[d]) * S[d * 32 + j] + k[d] * value;
    S[d * 32 + j] = state;
    sum += q[d] * state;
  }
  sums[part][j] = sum;
  __syncthreads();
  if (part == 0) {
    for (int p = 1; p < 8; ++p) sum += sums[p][j];
    o[j] = sum;
  }
  // end
}

void run(Global<const float> q, Global<const float> k, Global<const float> v, Global<const float> g, Global<float> S,
         Global<float> o, int key_dim) {
  launch(decode_step, {1, dim3(32, 8)}, q, k, v, g, S, o, key_dim);
}
