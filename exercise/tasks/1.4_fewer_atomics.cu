/// Exercise 1.4: fewer atomics
///
/// o[j] = sum over d of q[d] S[d * 32 + j], for key_dim rows of S and 32 columns. Blocks share the rows: block b has
/// the 64 rows from 64 b on (the last block may have fewer). A block has 32 x 8 threads. Thread (x = j, y = part) adds
/// up its rows of column j, which are row `part` of the block and every eighth row after it. The 8 sums of a column
/// then meet in `sums`: the first 4 parts add those of the other 4, then 2 parts those of 2, then 1. The sums of the
/// blocks come together in `o`, which is 0 at the start, by `atomicAdd(&o[j], sum)`.
///
/// Goal: one atomic operation per block and column. S is read once; q is read once by each column. At most 4 barriers.

#include "exercise/kernel.cuh"

static __global__ void row_blocks(Global<const float> q, Global<const float> S, Global<float> o, int key_dim) {
  __shared__ Shared<float, 8, 32> sums;
  const int j = static_cast<int>(threadIdx.x);
  const int part = static_cast<int>(threadIdx.y);
  // solution
  const int first = static_cast<int>(blockIdx.x) * 64;
  float sum = 0.0f;
  for (int d = first + part; d < first + 64 && d < key_dim; d += 8) sum += q[d] * S[d * 32 + j];
  sums[part][j] = sum;
  __syncthreads();
  for (int half = 4; half > 0; half /= 2) {
    if (part < half) sums[part][j] += sums[part + half][j];
    __syncthreads();
  }
  if (part == 0) atomicAdd(&o[j], sums[0][j]);
  // end
}

void run(Global<const float> q, Global<const float> S, Global<float> o, int key_dim) {
  launch(row_blocks, {static_cast<unsigned>((key_dim + 63) / 64), dim3(32, 8)}, q, S, o, key_dim);
}
