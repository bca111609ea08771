/// Exercise 5.3: the inverse of a unit lower matrix
///
/// T = (I + A)^-1 for a strictly lower A [16, 16], by forward substitution: row i of T is e_i - sum over j < i of
/// A[i][j] times row j of T. With row i of V in place of e_i the same substitution gives U = T V without a product: U
/// is what solves (I + A) U = V. The rows come one after the other, the columns know nothing of each other: one block
/// has 16 threads, thread c computes column c of T and of U [16, 16], both at once, and reads A from shared memory. A
/// column fits into registers: `t` and `u`. On a GPU registers have no index, so `#pragma unroll` stands before the
/// loop over the rows.
///
/// Goal: A and V are read once, T is written once with all its zeros, and so is U. One barrier.

#include "exercise/kernel.cuh"

static __global__ void inverse(Global<const float> A, Global<const float> V, Global<float> T, Global<float> U) {
  __shared__ Shared<float, 16, 16> a;
  const int c = static_cast<int>(threadIdx.x);
  float t[16];
  float u[16];
  // solution
  for (int i = 0; i < 16; ++i) a[i][c] = A[i * 16 + c];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    t[i] = i == c ? 1.0f : 0.0f;
    u[i] = V[i * 16 + c];
    for (int j = 0; j < i; ++j) {
      t[i] -= a[i][j] * t[j];
      u[i] -= a[i][j] * u[j];
    }
    T[i * 16 + c] = t[i];
    U[i * 16 + c] = u[i];
  }
  // end
}

void run(Global<const float> A, Global<const float> V, Global<float> T, Global<float> U) {
  launch(inverse, {1, 16}, A, V, T, U);
}
