/// Exercise 4.1: one kernel in place of two
///
/// The first of two kernels writes q~ = scale q exp(b), the second reads it for O = q~ S. Write one kernel that does
/// both. Q and B are [length, 32], S is [32, 32], O is [length, 32]. Block t has position t and 32 threads, thread j
/// has column j of O. Each element of q~ is needed by 32 threads and computed by one.
///
/// Goal: one launch. Q and B are read once, O is written once, and S is read once per position. At most one barrier.

#include "exercise/kernel.cuh"

static __global__ void fused(Global<const float> Q, Global<const float> B, Global<const float> S, Global<float> O,
                             float scale) {
  __shared__ Shared<float, 32> q;
  const int t = static_cast<int>(blockIdx.x);
  const int j = static_cast<int>(threadIdx.x);
  // solution
  q[j] = scale * Q[t * 32 + j] * expf(B[t * 32 + j]);
  __syncthreads();
  float sum = 0.0f;
  for (int d = 0; d < 32; ++d) sum += q[d] * S[d * 32 + j];
  O[t * 32 + j] = sum;
  // end
}

void run(Global<const float> Q, Global<const float> B, Global<const float> S, Global<float> O, float scale,
         int length) {
  launch(fused, {static_cast<unsigned>(length), 32}, Q, B, S, O, scale);
}
