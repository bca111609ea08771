/// @file
/// The kernel in front of the stages 7 and 8: T and P of each chunk. prepared.hpp has the formulas, chunk_inverse.cuh
/// the inverse.
///
/// Idea: K K^T and Q K^T have the same right factor, and both are needed on and below the diagonal only, in ten blocks
/// of 16 x 16. A warp has a row of blocks of either, row w of the first and row 3 - w of the second: five blocks for
/// everybody. Their sums never leave the registers as they are: those of Q K^T are masked and written as the fragments
/// that the walk will want, those of K K^T become A in shared memory, and the inverse of I + A, which a warp has in
/// registers row by row, is again written as fragments.
///
///     warp           0         1         2         3
///     K K^T        row 0     row 1     row 2     row 3        1, 2, 3, 4 blocks
///     Q K^T        row 3     row 2     row 1     row 0        4, 3, 2, 1 blocks
///     (I + A)^-1   row 0     row 1     row 2     row 3
///
/// Shapes: q, k [B, H, L, Dk], beta [B, H, L] in; Prepared out.
/// Who does what: block (n, h, b) has chunk n of head (b, h). Keys' norms are on the diagonal of K K^T.
/// Resources: Q and K in shared memory, 32 KB at Dk = 128, and A where they were.
/// Operations: 160 Dk a position on tensor cores; for the inverse 120 multiply-adds of 16 lanes a warp, and at most
/// 54 mma of a warp, 27 of them one after the other.
/// Bytes: q, k and beta read once, 244 bytes a position written.
/// Limit: the memory's bandwidth, next to it the instructions. Needs: Dk a multiple of 16, rows aligned to 16 bytes.
/// Weakness: q and k are read here and again by the walk.
/// Source: arXiv 2406.06484, section 3.2; the inverse in blocks of 16: flash-linear-attention, `solve_tril`.

#include <cuda_runtime.h>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "05_deltanet_wy/delta_rule/chunk_inverse.cuh"
#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::delta_rule {
namespace {

using linear_attention::kChunk;
using linear_attention::kThreads;
using linear_attention::load_tile_async;
using linear_attention::SwizzledTile;

template <int kDk>
constexpr int kTileBytes = kChunk* kDk* int(sizeof(__nv_bfloat16));
template <int kDk>
constexpr int kSharedBytes = 2 * kTileBytes<kDk> > InverseMemory::kBytes ? 2 * kTileBytes<kDk> : InverseMemory::kBytes;

/// sums = the blocks (r, 0) to (r, r) of X K^T, by one warp.
template <int kDk>
__device__ __forceinline__ void products_with_keys(BlockRow& sums, const SwizzledTile<kDk>& X,
                                                   const SwizzledTile<kDk>& K, int r) {
  const int lane = int(lane_index());
  const int x_unit = X.unit(r * kBlock + lane % 16, lane / 16 * 8);
  const int k_unit = K.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
  for (int d = 0; d < kDk; d += 16) {
    std::uint32_t x[4];
    ldmatrix_x4(x, X.data + X.moved(x_unit, 0, d));
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
      if (c > r) continue;
      std::uint32_t k[4];
      ldmatrix_x4(k, K.data + K.moved(k_unit, c * kBlock, d));
      mma_m16n8k16(sums[c][0], x, {k[0], k[1]});
      mma_m16n8k16(sums[c][1], x, {k[2], k[3]});
    }
  }
}

/// Calls f(block, t, i, element): for the lane's elements of the blocks (r, 0) to (r, r), row t and column i of the
/// chunk.
template <class F>
__device__ __forceinline__ void for_each_element(BlockRow& sums, int r, F f) {
  const int lane = int(lane_index());
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c > r) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      f(r * kBlock + lane / 4 + i % 4 / 2 * 8, c * kBlock + i / 4 * 8 + lane % 4 * 2 + i % 2, sums[c][i / 4][i % 4]);
    }
  }
}

/// Writes the blocks (r, 0) to (r, r), rounded, as fragments B of the transposed blocks. What is left of the elements
/// takes the place of the rounded.
/// @param blocks [10, 32], the chunk's
__device__ __forceinline__ void store_blocks(uint4* blocks, BlockRow& sums, int r) {
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c > r) continue;
    std::uint32_t two[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float* of = &sums[c][i % 2][i / 2 * 2];
      two[i] = pack(of[0], of[1]);
      const float2 kept = unpack(two[i]);
      of[0] -= kept.x;
      of[1] -= kept.y;
    }
    store_global(blocks + lower_block(r, c) * 32 + lane_index(), make_uint4(two[0], two[1], two[2], two[3]));
  }
}

/// Grid (N, H, B).
template <int kDk>
__global__ void __launch_bounds__(kThreads, kDk <= 128 ? 6 : 3) prepare_kernel(HalfArguments a, Prepared out) {
  __shared__ float beta[kChunk], factors[kChunk];
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), t = n * kChunk, rows = a.L - t;
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * out.N + n;
  // The same in all lanes, and so that the compiler knows: it decides about branches around products.
  const int i = int(threadIdx.x), warp = __shfl_sync(kAllLanes, i / 32, 0);
  const SwizzledTile<kDk> Q{dynamic_shared<__nv_bfloat16>()}, K{Q.data + kChunk * kDk};
  const InverseMemory memory{dynamic_shared<float>()};  // where Q and K were

  load_tile_async(K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
  load_tile_async(Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
  cp_async_commit();
  if (i < kChunk) beta[i] = i < rows ? load_global(a.beta.row(b, h, t + i)) : 0.0f;
  cp_async_wait<0>();
  __syncthreads();

  {
    BlockRow P = {};
    products_with_keys(P, Q, K, kBlocks - 1 - warp);
    for_each_element(P, kBlocks - 1 - warp, [](int t, int i, float& x) { x = i <= t ? x : 0.0f; });
    store_blocks(out.P + chunk * kLowerBlocks * 32, P, kBlocks - 1 - warp);
  }
  BlockRow A = {};
  products_with_keys(A, K, K, warp);
  for_each_element(A, warp, [&](int t, int i, float& x) {
    if (t == i) factors[t] = a.normalize_keys ? rsqrtf(x + kKeyEps) : 1.0f;
  });
  __syncthreads();  // nobody reads Q or K any more
  if (i < kChunk) store_global(out.factors + chunk * kChunk + i, factors[i]);
  for_each_element(
      A, warp, [&](int t, int i, float& x) { *memory.A(t, i) = i < t ? beta[t] * factors[t] * factors[i] * x : 0.0f; });
  __syncwarp();  // its block of the diagonal is the warp's own
  invert_diagonal_block(memory, warp);
  __syncthreads();
  BlockRow& X = A;
  inverse_row(X, memory, warp);
  for_each_element(X, warp, [&](int, int i, float& x) { x *= -beta[i]; });
  uint4* T = out.T + chunk * 2 * kLowerBlocks * 32;
  store_blocks(T, X, warp);
  store_blocks(T + kLowerBlocks * 32, X, warp);
}

int chunk_count(const HalfArguments& a) {
  return (a.L - 1) / kChunk + 1;
}

std::int64_t all_chunks(const HalfArguments& a) {
  return std::int64_t(a.B) * a.H * chunk_count(a);
}

}  // namespace

Prepared prepare(const HalfArguments& a) {
  const std::int64_t units = all_chunks(a) * kLowerBlocks * 32;
  auto* blocks = workspace<uint4>("delta_rule: T and P", std::size_t(3 * units));
  const Prepared prepared{chunk_count(a), blocks, blocks + 2 * units,
                          workspace<float>("delta_rule: factors", std::size_t(all_chunks(a) * kChunk))};
  const auto run = [&](auto kernel, int shared_bytes) {
    launch(kernel,
           {dim3(unsigned(prepared.N), unsigned(a.H), unsigned(a.B)), unsigned(kThreads), std::size_t(shared_bytes)}, a,
           prepared);
  };
  if (a.Dk <= 64) {
    run(prepare_kernel<64>, kSharedBytes<64>);
  } else if (a.Dk <= 128) {
    run(prepare_kernel<128>, kSharedBytes<128>);
  } else {
    run(prepare_kernel<256>, kSharedBytes<256>);
  }
  return prepared;
}

std::int64_t prepared_memory(const HalfArguments& a) {
  return all_chunks(a) * (3 * kLowerBlocks * 32 * std::int64_t(sizeof(uint4)) + kChunk * std::int64_t(sizeof(float)));
}

std::int64_t prepared_moved(const HalfArguments& a) {
  return std::int64_t(a.B) * a.H * a.L * (2 * 2 * a.Dk + 4) + prepared_memory(a);
}

}  // namespace tutorial::delta_rule
