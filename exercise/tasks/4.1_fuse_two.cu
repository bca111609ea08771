/// Exercise 4.1: one kernel in place of two
///
/// The first of two kernels writes q~ = scale q exp(b), the second reads it for O = q~ S. Write one kernel that does
/// both. Q, B and O are [length, 32], S is [32, 32]. Block n has the 8 positions from 8 n on (the last block may have
/// fewer) and 32 threads; thread j has column j of O. It loads column j of S into registers once, for all positions of
/// the block. Each element of q~ is needed by 32 threads and computed by one: row t of q~ goes through `q`.
///
/// Goal: one launch. Q and B are read once, O is written once, and S is read once per block. At most two barriers per
/// position.

#include "exercise/kernel.cuh"

static __global__ void fused(Global<const float> Q, Global<const float> B, Global<const float> S, Global<float> O,
                             float scale, int length) {
  __shared__ Shared<float, 32> q;
  const int first = static_cast<int>(blockIdx.x) * 8;
  const int j = static_cast<int>(threadIdx.x);
  // solution
  float column[32];
  for (int d = 0; d < 32; ++d) column[d] = S[d * 32 + j];
  for (int t = first; t < first + 8 && t < length; ++t) {
    q[j] = scale * Q[t * 32 + j] * expf(B[t * 32 + j]);
    __syncthreads();
    float sum = 0.0f;
    for (int d = 0; d < 32; ++d) sum += q[d] * column[d];
    O[t * 32 + j] = sum;
    __syncthreads();
  }
  // end
}

void run(Global<const float> Q, Global<const float> B, Global<const float> S, Global<float> O, float scale,
         int length) {
  launch(fused, {static_cast<unsigned>((length + 7) / 8), 32}, Q, B, S, O, scale, length);
}
