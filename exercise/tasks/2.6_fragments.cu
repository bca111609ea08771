/// Exercise 2.6: a product on a tensor core
///
/// D = A B with A [16, 16], B [16, 8] and D [16, 8], row after row, by one warp and one `mma_m16n8k16`. Each lane loads
/// its own fragments. common/device/mma.cuh draws which elements those are: with g = lane / 4 and p = 2 * (lane % 4),
/// register a[0] has A[g][p] and A[g][p + 1], a[1] has row g + 8, a[2] has columns p + 8 and p + 9 of row g, a[3] has
/// both. b[0] has B[p][g] and B[p + 1][g], b[1] has rows p + 8 and p + 9. `pair(x, y)` puts two numbers into a register
/// as bf16, x into its lower half.
///
/// Goal: A and B are read once, D is written once. One product.

#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "exercise/kernel.cuh"

static __device__ std::uint32_t pair(float x, float y) {
  return pack<__nv_bfloat16>(x, y);
}

static __global__ void fragments(Global<const float> A, Global<const float> B, Global<float> D) {
  const int g = static_cast<int>(threadIdx.x) / 4;
  const int p = static_cast<int>(threadIdx.x) % 4 * 2;
  float d[4] = {};
  // solution
  std::uint32_t a[4];
  for (int i = 0; i < 4; ++i) {
    const int row = g + i % 2 * 8;
    const int column = p + i / 2 * 8;
    a[i] = pair(A[row * 16 + column], A[row * 16 + column + 1]);
  }
  std::uint32_t b[2];
  for (int i = 0; i < 2; ++i) b[i] = pair(B[(p + i * 8) * 8 + g], B[(p + i * 8 + 1) * 8 + g]);
  mma_m16n8k16<__nv_bfloat16>(d, a, b);
  for (int i = 0; i < 4; ++i) D[(g + i / 2 * 8) * 8 + p + i % 2] = d[i];
  // end
}

void run(Global<const float> A, Global<const float> B, Global<float> D) {
  launch(fragments, {1, 32}, A, B, D);
}
