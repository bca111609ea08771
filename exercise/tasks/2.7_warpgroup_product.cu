/// Exercise 2.7: two products by a warpgroup
///
/// O = (Q K^T) V with Q, K, V and O [64, 64], row after row, by one warpgroup of 128 threads: the outputs of a chunk
/// without a mask. `load` brings a matrix to shared memory. The products are `wgmma<64>(d, a, b.along_k(k),
/// accumulate)` of common/device/wgmma.cuh, each of them for 16 values of k. Q is the left factor from shared memory.
/// The scores become the left factor of the second product without leaving their registers: `wgmma_fragment(a, scores,
/// k)` rounds 16 columns of them. Sum i of a thread lies at row `wgmma_row(i)` and column `wgmma_column(i)`.
///
/// `SharedFactor<Major::kK> x(tile, 0)` is a factor whose rows run along k, and `Major::kMn` one whose rows are the k.
/// Before a group of products stands `wgmma_fence(x)`, where x are its sums and its fragments of A, which are
/// `std::uint32_t a[4]` each; behind it stand `wgmma_commit()` and `wgmma_wait<0>(x)`. `accumulate` is false for the
/// first product of a sum. Products look at shared memory through the async proxy: what a thread has stored there gets
/// to it by that thread's `fence_async_proxy()`.
///
/// Goal: right in every order of the warps. Q, K and V are read once, O is written once. One `__syncthreads()`.

#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/swizzled_tile.cuh"
#include "exercise/kernel.cuh"

static __device__ void load(__nv_bfloat16* to, Global<const float> x) {
  for (int i = static_cast<int>(threadIdx.x); i < 64 * 64; i += 128) {
    const int row = i / 64;
    const int column = i % 64;
    const int unit = tile::SwizzledTile<64>::unit(row, column / 8 * 8);
    store_for_copies(&to[unit + column % 8], __float2bfloat16(x[i]));
  }
}

static __global__ void warpgroup_products(Global<const float> Q, Global<const float> K, Global<const float> V,
                                          Global<float> O) {
  auto* q = dynamic_shared<__nv_bfloat16, 1024>();
  __nv_bfloat16* k_tile = q + 64 * 64;
  __nv_bfloat16* v = k_tile + 64 * 64;
  float scores[32];
  float o[32];
  load(q, Q);
  load(k_tile, K);
  load(v, V);
  // solution
  fence_async_proxy();
  __syncthreads();
  const SharedFactor<Major::kK> left(q, 0);
  const SharedFactor<Major::kK> keys(k_tile, 0);
  const SharedFactor<Major::kMn> values(v, 0);
  wgmma_fence(scores);
#pragma unroll
  for (int k = 0; k < 64; k += 16) wgmma<64>(scores, left.along_k(k), keys.along_k(k), k > 0);
  wgmma_commit();
  wgmma_wait<0>(scores);
  std::uint32_t a[4][4];
#pragma unroll
  for (int k = 0; k < 64; k += 16) wgmma_fragment(a[k / 16], scores, k);
  wgmma_fence(o, a);
#pragma unroll
  for (int k = 0; k < 64; k += 16) wgmma<64>(o, a[k / 16], values.along_k(k), k > 0);
  wgmma_commit();
  wgmma_wait<0>(o, a);
#pragma unroll
  for (int i = 0; i < 32; ++i) O[wgmma_row(i) * 64 + wgmma_column(i)] = o[i];
  // end
}

void run(Global<const float> Q, Global<const float> K, Global<const float> V, Global<float> O) {
  launch(warpgroup_products, {1, 128, 3 * 64 * 64 * sizeof(__nv_bfloat16)}, Q, K, V, O);
}
