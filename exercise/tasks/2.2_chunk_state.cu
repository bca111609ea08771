/// Exercise 2.2: what a chunk adds to the state
///
/// S += K^T V, chunk by chunk: a chunk of 16 positions i adds the sum of K[i][d] V[i][j] to S[d][j], and the last chunk
/// may have fewer positions. K is [length, 32], V is [length, 8], S is [32, 8], row after row. One block has 8 x 32
/// threads; thread (x = j, y = d) keeps element [d][j] of S in a register through all chunks. In each chunk all threads
/// load K, two elements each, and the first 16 x 8 of them load V, into shared memory. Put zeros in place of positions
/// that do not exist.
///
/// Goal: every array is read once, S is written once. At most two barriers per chunk.

#include "exercise/kernel.cuh"

static __global__ void chunk_state(Global<const float> K, Global<const float> V, Global<float> S, int length) {
  __shared__ Shared<float, 16, 32> k;
  __shared__ Shared<float, 16, 8> v;
  const int j = static_cast<int>(threadIdx.x);
  const int d = static_cast<int>(threadIdx.y);
  const int thread = d * 8 + j;  // 0 to 255
  // solution
  float sum = S[d * 8 + j];
  for (int first = 0; first < length; first += 16) {
    for (int e = thread; e < 16 * 32; e += 256) {
      k[e / 32][e % 32] = first + e / 32 < length ? K[first * 32 + e] : 0.0f;
    }
    if (thread < 16 * 8) v[thread / 8][thread % 8] = first + thread / 8 < length ? V[first * 8 + thread] : 0.0f;
    __syncthreads();
    for (int i = 0; i < 16; ++i) sum += k[i][d] * v[i][j];
    __syncthreads();
  }
  S[d * 8 + j] = sum;
  // end
}

void run(Global<const float> K, Global<const float> V, Global<float> S, int length) {
  launch(chunk_state, {1, dim3(8, 32)}, K, V, S, length);
}
