/// Exercise 5.3: the inverse of a unit lower matrix
///
/// T = (I + A)^-1 for a strictly lower A [16, 16], by forward substitution: row i of T is e_i - sum over j < i of
/// A[i][j] times row j of T. The rows come one after the other, the columns know nothing of each other: one block has
/// 16 threads, thread c computes column c of T, and reads A from shared memory. A column of T fits into registers.
///
/// Goal: A is read once, T is written once with all its zeros, one barrier.

#include "exercise/kernel.cuh"

static __global__ void inverse(Global<const float> A, Global<float> T) {
  __shared__ Shared<float, 16, 16> a;
  const int c = static_cast<int>(threadIdx.x);
  float column[16];
  // solution
  for (int i = 0; i < 16; ++i) a[i][c] = A[i * 16 + c];
  __syncthreads();
  for (int i = 0; i < 16; ++i) {
    column[i] = i == c ? 1.0f : 0.0f;
    for (int j = 0; j < i; ++j) column[i] -= a[i][j] * column[j];
    T[i * 16 + c] = column[i];
  }
  // end
}

void run(Global<const float> A, Global<float> T) {
  launch(inverse, {1, 16}, A, T);
}
