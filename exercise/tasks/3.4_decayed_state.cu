/// Exercise 3.4: the state across chunks
///
/// S becomes diag(exp(b_15)) S + sum over i of (k_i exp(b_15 - b_i))^T v_i, for one chunk of 16 positions after the
/// other. b is the running sum of the gates' logarithms, which begins anew in each chunk: the old state fades over all
/// of the chunk, and position i over what comes after it. K and B are [chunks, 16, 32], V is [chunks, 16, 8], S is [32,
/// 8]. One block has 8 x 32 threads; thread (x = j, y = d) has element [d][j] of S, in a register through all chunks.
/// Keys that are faded are needed by 8 threads each: compute each of them once, into `k`.
///
/// Goal: K and V are read once, and so is S. B is read at most twice. Two barriers per chunk. No exponent is positive.

#include "exercise/kernel.cuh"

static __global__ void decayed_state(Global<const float> K, Global<const float> V, Global<const float> B,
                                     Global<float> S, int chunks) {
  __shared__ Shared<float, 16, 32> k;
  __shared__ Shared<float, 16, 8> v;
  __shared__ Shared<float, 32> decay;
  const int j = static_cast<int>(threadIdx.x);
  const int d = static_cast<int>(threadIdx.y);
  // solution
  float state = S[d * 8 + j];
  for (int first = 0; first < chunks * 16; first += 16) {
    const float last = B[(first + 15) * 32 + d];
    for (int i = j; i < 16; i += 8) k[i][d] = K[(first + i) * 32 + d] * expf(last - B[(first + i) * 32 + d]);
    if (j == 0) decay[d] = expf(last);
    if (d < 16) v[d][j] = V[(first + d) * 8 + j];
    __syncthreads();
    state *= decay[d];
    for (int i = 0; i < 16; ++i) state += k[i][d] * v[i][j];
    __syncthreads();
  }
  S[d * 8 + j] = state;
  // end
}

void run(Global<const float> K, Global<const float> V, Global<const float> B, Global<float> S, int chunks) {
  launch(decayed_state, {1, dim3(8, 32)}, K, V, B, S, chunks);
}
