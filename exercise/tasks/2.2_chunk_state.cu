/// Exercise 2.2: what a chunk adds to the state
///
/// S += K^T V for a chunk of 16 positions: S[d][j] += sum over i of K[i][d] V[i][j]. K is [16, 32], V is [16, 8], S is
/// [32, 8], row after row. One block has 8 x 32 threads; thread (x = j, y = d) has element [d][j] of S. The first 16 x
/// 8 threads that find work load V, and all threads load K, two elements each, into shared memory.
///
/// Goal: every array is read once, S is written once. One barrier.

#include "exercise/kernel.cuh"

static __global__ void chunk_state(Global<const float> K, Global<const float> V, Global<float> S) {
  __shared__ Shared<float, 16, 32> k;
  __shared__ Shared<float, 16, 8> v;
  const int j = static_cast<int>(threadIdx.x);
  const int d = static_cast<int>(threadIdx.y);
  const int thread = d * 8 + j;  // 0 to 255
  // solution
  for (int i = thread; i < 16 * 32; i += 256) k[i / 32][i % 32] = K[i];
  if (thread < 16 * 8) v[thread / 8][thread % 8] = V[thread];
  __syncthreads();
  float sum = S[d * 8 + j];
  for (int i = 0; i < 16; ++i) sum += k[i][d] * v[i][j];
  S[d * 8 + j] = sum;
  // end
}

void run(Global<const float> K, Global<const float> V, Global<float> S) {
  launch(chunk_state, {1, dim3(8, 32)}, K, V, S);
}
