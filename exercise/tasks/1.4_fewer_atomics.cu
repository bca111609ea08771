/// Exercise 1.4: fewer atomics
///
/// o[j] = sum over d of q[d] S[d * 32 + j], for key_dim rows of S and 32 columns. Blocks share the rows: block b has
/// the 8 rows from 8 b on (the last block may have fewer), and its 32 threads have one column each. The sums of the
/// blocks come together in `o`, which is 0 at the start, by `atomicAdd(&o[j], sum)`.
///
/// Goal: one atomic operation per block and column. S is read once; q is read once by each column.

#include "exercise/kernel.cuh"

static __global__ void row_blocks(Global<const float> q, Global<const float> S, Global<float> o, int key_dim) {
  const int j = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.x) * 8;
  // solution
  float sum = 0.0f;
  for (int d = first; d < first + 8 && d < key_dim; ++d) sum += q[d] * S[d * 32 + j];
  atomicAdd(&o[j], sum);
  // end
}

void run(Global<const float> q, Global<const float> S, Global<float> o, int key_dim) {
  launch(row_blocks, {static_cast<unsigned>((key_dim + 7) / 8), 32}, q, S, o, key_dim);
}
