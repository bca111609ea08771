/// Exercise 5.4: two inverses make one
///
/// A unit lower matrix of 2 x 2 blocks, with L_11 and L_22 on the diagonal and L_21 below, has the inverse with T_11
/// and T_22 on the diagonal and T_21 = -T_22 L_21 T_11 below. T_11, T_22 and L_21 are given, each [8, 8]. T is [16,
/// 16]: write all of it, also the zeros of the block T_12. One block has 8 x 8 threads, thread (x = j, y = i) has
/// element [i][j] of each block. `product` is for the first of the two products.
///
/// Goal: each input is read once, T is written once. Two barriers.

#include "exercise/kernel.cuh"

static __global__ void block_inverse(Global<const float> T11, Global<const float> T22, Global<const float> L21,
                                     Global<float> T) {
  __shared__ Shared<float, 8, 8> t11;
  __shared__ Shared<float, 8, 8> t22;
  __shared__ Shared<float, 8, 8> l21;
  __shared__ Shared<float, 8, 8> product;
  const int j = static_cast<int>(threadIdx.x);
  const int i = static_cast<int>(threadIdx.y);
  // solution
  t11[i][j] = T11[i * 8 + j];
  t22[i][j] = T22[i * 8 + j];
  l21[i][j] = L21[i * 8 + j];
  __syncthreads();
  float sum = 0.0f;
  for (int d = 0; d < 8; ++d) sum += t22[i][d] * l21[d][j];
  product[i][j] = sum;
  __syncthreads();
  sum = 0.0f;
  for (int d = 0; d < 8; ++d) sum -= product[i][d] * t11[d][j];
  T[i * 16 + j] = t11[i][j];
  T[i * 16 + j + 8] = 0.0f;
  T[(i + 8) * 16 + j] = sum;
  T[(i + 8) * 16 + j + 8] = t22[i][j];
  // end
}

void run(Global<const float> T11, Global<const float> T22, Global<const float> L21, Global<float> T) {
  launch(block_inverse, {1, dim3(8, 8)}, T11, T22, L21, T);
}
