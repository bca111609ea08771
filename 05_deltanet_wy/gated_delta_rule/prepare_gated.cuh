#pragma once
/// @file
/// The kernel that runs first on tensor cores: T, P and the decays of each chunk. prepare_gated.hpp has the formulas.
///
/// It is chunk/prepare.cu with gates. One warp computes the running sums of the chunk's gates and leaves them in
/// shared memory. Each element of A and of P is multiplied by the decay of its pair of positions, 2^(b_t - b_i), before
/// anything is rounded. The inverse does not change.
///
/// Why are the decays in A, and not applied to the inverse of the matrix without them? In exact arithmetic it is the
/// same: A is D A' D^-1 with D = diag(exp(b)), so (I + A)^-1 = D (I + A')^-1 D^-1. But where keys are longer than 1,
/// the elements of (I + A')^-1 may grow without bound while those of (I + A)^-1 stay small, because each step fades.
///
/// All logarithms are to base 2. A gate is taken as at least 2^-127, as in chapter 04. Then a chunk's sums are at least
/// -8128, where neighbouring fp32 numbers are 2^-11 apart, so a gate near 1 keeps its digits behind strong ones. No
/// gate that is a normal number of fp32 is that small, and ex2() makes 0 of 2^-127.
///
/// Shapes: q, k [B, H, L, Dk], beta, g [B, H, L] in; Prepared out.
/// Thread mapping: block (n, h, b) computes chunk n of head (b, h), as in chunk/prepare.cu.
/// Resources: Q and K in shared memory, 32 KB at Dk = 128, later A in the same place.
/// Work: that of chunk/prepare.cu, and 80 ex2 per position.
/// Bytes: q, k, beta and g are read once; 252 bytes per position are written as fragments, or 396 as rows.
/// Bound by: the memory's bandwidth, closely followed by the instructions.
/// Requires: Dk a multiple of 16, rows aligned to 16 bytes.
/// Sources: those of chunk/prepare.cu; arXiv 2412.06464, section 3.3.

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/block_rows.cuh"
#include "05_deltanet_wy/chunk/inverse.cuh"
#include "05_deltanet_wy/chunk/key_products.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepare_gated.hpp"
#include "05_deltanet_wy/gated_delta_rule/running_sums.cuh"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/walked_heads.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/base2.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/warm_up.cuh"

namespace tutorial::gated_delta_rule {

using namespace delta_rule;  // a chunk's blocks, and its inverse
using namespace tile;

/// Prepares a chunk.
/// @tparam Out Prepared or PreparedTiles: store_scores() and store_T() say how each stores the scores of a chunk, and T
/// @param t its first position @param chunk its number, among those of all heads
template <int kDk, class Out>
__device__ __forceinline__ void prepare_chunk(const Bf16Arguments& a, const Out& out, const ForGradients& also, int b,
                                              int h, int t, std::int64_t chunk) {
  __shared__ float beta[kChunk], factors[kChunk], sums[kChunk], squares[kChunk];
  __shared__ AlikeRows alike;
  // The shuffle tells the compiler that `warp` is the same in all lanes. Branches around products depend on it.
  const int rows = a.L - t, i = int(threadIdx.x), warp = __shfl_sync(kAllLanes, i / 32, 0);
  const SwizzledTile<kDk> Q{dynamic_shared<__nv_bfloat16>()}, K{Q.data + kChunk * kDk};
  const InverseMemory memory{dynamic_shared<float>()};  // where Q and K were

  load_tile_async(K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
  load_tile_async(Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
  cp_async_commit();
  if (i < kChunk) beta[i] = i < rows ? fmaxf(load_global(a.beta.row(b, h, t + i)), also.least_beta) : 0.0f;
  if (warp == 3) running_sums(sums, a.g, b, h, t, a.L);
  cp_async_wait<0>();
  __syncthreads();

  const auto decay = [&](int t, int i) { return ex2(sums[t] - sums[i]); };
  {
    BlockRow P = {};
    products_with_keys(P, Q, K, kBlocks - 1 - warp);
    for_each_element(P, kBlocks - 1 - warp, [&](int t, int i, float& x) {
      x *= decay(t, i);
      if (i > t) x = 0;
    });
    store_scores(out, also, chunk, P, kBlocks - 1 - warp);
  }
  BlockRow A = {};
  products_with_keys(A, K, K, warp);
  for_each_element(A, warp, [&](int t, int i, float& x) {
    if (t == i) factors[t] = a.normalize_keys ? rsqrtf(x + kKeyEps) : 1.0f, squares[t] = x;
  });
  __syncthreads();  // no warp reads Q or K any more
  if (i < kChunk) {
    float* decays = out.decays + chunk * kDecays + i;
    store_global(decays + kOfKeys * kChunk, factors[i] * ex2(sums[i]));
    store_global(decays + kOfQueries * kChunk, ex2(sums[i]));
    store_global(decays + kToEnd * kChunk, decay(kChunk - 1, i));
    if (also.factors) store_global(also.factors + chunk * kChunk + i, factors[i]);
  }
  if (also.bounds && warp == 0) store_bound(also.bounds + chunk, sums[kChunk - 1], beta, factors, squares);
  for_each_element(A, warp, [&](int t, int i, float& x) { x *= factors[t] * factors[i] * decay(t, i); });
  note_alike(alike, A, warp, beta);
  for_each_element(A, warp, [&](int t, int i, float& x) { *memory.A(t, i) = x; });
  __syncwarp();  // each warp reads only its own block of the diagonal
  invert_diagonal_block(memory, warp);
  __syncthreads();
  inverse_row(A, memory, warp);  // which takes the place of A
  for_each_element(A, warp, [&](int t, int i, float& x) { x *= factors[t] * beta[i]; });
  store_T(out, also, chunk, A, warp, alike);
}

/// Grid (N, H, B).
template <int kDk, class Out>
__global__ void __launch_bounds__(kThreads, kDk <= 128 ? 6 : 3)
    prepare_kernel(Bf16Arguments a, Out out, ForGradients also) {
  let_next_kernel_start();
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x);
  if (has_been_walked(a.heads, b * a.H + h)) return;
  prepare_chunk<kDk>(a, out, also, b, h, n * kChunk, (std::int64_t(b) * a.H + h) * out.N + n);
}

/// Decays of all chunks, in a workspace.
inline float* reserve_decays(const Bf16Arguments& a) {
  return workspace<float>("gated_delta_rule: decays", std::size_t(a.B) * a.H * ceil_div(a.L, kChunk) * kDecays);
}

/// Fills `out` by one block for each chunk.
template <class Out>
Out filled(const Bf16Arguments& a, const Out& out, const ForGradients& also) {
  const auto start = [&]<int kDk>(std::integral_constant<int, kDk>) {
    const int bytes = std::max(2 * kChunk * kDk * int(sizeof(__nv_bfloat16)), InverseMemory::kBytes);
    LaunchConfig config(dim3(unsigned(out.N), unsigned(a.H), unsigned(a.B)), kThreads, std::size_t(bytes));
    config.starts_early = a.heads.walked != nullptr;
    launch(prepare_kernel<kDk, Out>, config, a, out, also);
  };
  a.Dk <= 64    ? start(std::integral_constant<int, 64>())
  : a.Dk <= 128 ? start(std::integral_constant<int, 128>())
                : start(std::integral_constant<int, 256>());
  return out;
}

}  // namespace tutorial::gated_delta_rule
