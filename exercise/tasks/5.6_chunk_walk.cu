/// Exercise 5.6: the walk over the chunks
///
/// With W and U of each chunk (exercise 5.5) the state goes from chunk to chunk: R = U - W S, then S = S + K^T R. W, U
/// and K are [chunks, 16, 16] and S is [16, 16]. Write the state after all chunks to S, which is 0 before, and R of
/// each chunk, [chunks, 16, 16]. One block has 16 x 16 threads; thread (x = j, y = i) has element [i][j] of each
/// matrix, that of S among them. Threads read the old state of others, which lies in `state` during the walk; a chunk's
/// W and K lie in `w` and `k`, and its R in `r`.
///
/// Goal: each input is read once, S and R are written once: S stays on the chip. Three barriers per chunk.

#include "exercise/kernel.cuh"

static __global__ void chunk_walk(Global<const float> W, Global<const float> U, Global<const float> K, Global<float> R,
                                  Global<float> S, int chunks) {
  __shared__ Shared<float, 16, 16> w;
  __shared__ Shared<float, 16, 16> k;
  __shared__ Shared<float, 16, 16> r;
  __shared__ Shared<float, 16, 16> state;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  state[i][j] = 0.0f;
  for (int n = 0; n < chunks; ++n) {
    const int element = (n * 16 + i) * 16 + j;
    w[i][j] = W[element];
    k[i][j] = K[element];
    __syncthreads();
    float residual = U[element];
    for (int d = 0; d < 16; ++d) residual -= w[i][d] * state[d][j];
    r[i][j] = residual;
    R[element] = residual;
    __syncthreads();
    float sum = state[i][j];
    for (int p = 0; p < 16; ++p) sum += k[p][i] * r[p][j];
    state[i][j] = sum;
    __syncthreads();
  }
  S[i * 16 + j] = state[i][j];
  // end
}

void run(Global<const float> W, Global<const float> U, Global<const float> K, Global<float> R, Global<float> S,
         int chunks) {
  launch(chunk_walk, {1, dim3(16, 16)}, W, U, K, R, S, chunks);
}
