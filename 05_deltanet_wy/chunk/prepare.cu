/// @file
/// The kernel that runs first in every stage on tensor cores: it computes T and P of each chunk. prepare.hpp has the
/// formulas, inverse.cuh the inverse.
///
/// Idea: K K^T and Q K^T have the same right factor, and both are needed only on and below the diagonal, in ten blocks
/// of 16 x 16. Warp w computes row w of the blocks of K K^T and row 3 - w of those of Q K^T: five blocks per warp. Q
/// K^T is masked and written as the fragments that the walk will read. K K^T becomes A in shared memory. Each warp has
/// one row of blocks of the inverse of I + A in registers, and writes it as fragments, too.
///
///     warp           0         1         2         3
///     K K^T        row 0     row 1     row 2     row 3        1, 2, 3, 4 blocks
///     Q K^T        row 3     row 2     row 1     row 0        4, 3, 2, 1 blocks
///     (I + A)^-1   row 0     row 1     row 2     row 3
///
/// prepare_tiles() writes rows instead of fragments, with zeros above the diagonal.
///
/// Shapes: q, k [B, H, L, Dk], beta [B, H, L] in; Prepared or PreparedTiles out.
/// Thread mapping: block (n, h, b) computes chunk n of head (b, h). The squared norms of the keys are on the diagonal
/// of K K^T.
/// Resources: Q and K in shared memory, 32 KB at Dk = 128, later A in the same place.
/// Work: 160 Dk operations per position on tensor cores; for the inverse 120 multiply-adds of 16 lanes per warp, and at
/// most 54 mma per warp, 27 of them one after the other.
/// Bytes: q, k and beta are read once; 244 bytes per position are written as fragments, or 384 as rows.
/// Bound by: the memory's bandwidth, closely followed by the instructions.
/// Requires: Dk a multiple of 16, rows aligned to 16 bytes.
/// Weakness: q and k are read here and again by the walk.
/// Sources: arXiv 2406.06484, section 3.2; flash-linear-attention, `solve_tril`, for the inverse in blocks of 16.

#include <cuda_runtime.h>

#include <cmath>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/block_rows.cuh"
#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/inverse.cuh"
#include "05_deltanet_wy/chunk/key_products.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/tile_rows.cuh"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/chunk_products.cuh"
#include "common/tile/load_tile.cuh"

namespace tutorial::delta_rule {
namespace {

using tile::kChunk;
using tile::kThreads;
using tile::load_tile_async;
using tile::SwizzledTile;

template <int kDk>
constexpr int kTileBytes = kChunk* kDk* int(sizeof(__nv_bfloat16));
template <int kDk>
constexpr int kSharedBytes = 2 * kTileBytes<kDk> > InverseMemory::kBytes ? 2 * kTileBytes<kDk> : InverseMemory::kBytes;

// How each kind of output stores the scores of a chunk and its inverse, whose columns are already multiplied by beta.
__device__ __forceinline__ void store_scores(const Prepared& out, std::int64_t chunk, BlockRow& P, int r) {
  store_blocks(out.P + chunk * kBlockUnits, P, r);
}
__device__ __forceinline__ void store_inverse(const Prepared& out, std::int64_t chunk, BlockRow& T, int r,
                                              const AlikeRows& alike) {
  mark(T, r, alike);
  uint4* blocks = out.T + chunk * 2 * kBlockUnits;
  store_blocks(blocks, T, r);
  store_blocks(blocks + kBlockUnits, T, r);
}
__device__ __forceinline__ void store_factor(const Prepared& out, std::int64_t position, float factor) {
  store_global(out.factors + position, factor);
}
__device__ __forceinline__ void store_scores(const PreparedTiles& out, std::int64_t chunk, BlockRow& P, int r) {
  store_rows(out.tiles + (chunk * 3 + 2) * kChunk * kChunk, P, r);
}
__device__ __forceinline__ void store_inverse(const PreparedTiles& out, std::int64_t chunk, BlockRow& T, int r,
                                              const AlikeRows& alike) {
  for_each_element(T, r, [](int, int, float& x) { x = -x; });
  mark(T, r, alike);
  __nv_bfloat16* rows = out.tiles + chunk * 3 * kChunk * kChunk;
  store_rows(rows, T, r);
  store_rows(rows + kChunk * kChunk, T, r);
}
__device__ __forceinline__ void store_factor(const PreparedTiles&, std::int64_t, float) {}

/// Grid (N, H, B).
/// @tparam Out Prepared or PreparedTiles
/// @tparam kWithP whether P is wanted
/// @param least_beta in the place of every beta below it
template <int kDk, class Out, bool kWithP>
__global__ void __launch_bounds__(kThreads, kDk <= 128 ? 6 : 3)
    prepare_kernel(Bf16Arguments a, Out out, float least_beta) {
  let_next_kernel_start();
  __shared__ float beta[kChunk], factors[kChunk];
  __shared__ AlikeRows alike;
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), t = n * kChunk, rows = a.L - t;
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * out.N + n;
  // The shuffle tells the compiler that `warp` is the same in all lanes. Branches around products depend on it.
  const int i = int(threadIdx.x), warp = __shfl_sync(kAllLanes, i / 32, 0);
  const SwizzledTile<kDk> Q{dynamic_shared<__nv_bfloat16>()}, K{Q.data + kChunk * kDk};
  const InverseMemory memory{dynamic_shared<float>()};  // where Q and K were

  load_tile_async(K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
  if constexpr (kWithP) load_tile_async(Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
  cp_async_commit();
  if (i < kChunk) {
    const float x = i < rows ? load_global(a.beta.row(b, h, t + i)) : 0.0f;
    beta[i] = i < rows && x < least_beta ? least_beta : x;
  }
  cp_async_wait<0>();
  __syncthreads();

  if constexpr (kWithP) {
    BlockRow P = {};
    products_with_keys(P, Q, K, kBlocks - 1 - warp);
    for_each_element(P, kBlocks - 1 - warp, [](int t, int i, float& x) { x = i <= t ? x : 0.0f; });
    store_scores(out, chunk, P, kBlocks - 1 - warp);
  }
  BlockRow A = {};
  products_with_keys(A, K, K, warp);
  for_each_element(A, warp, [&](int t, int i, float& x) {
    if (t == i) factors[t] = a.normalize_keys ? rsqrtf(x + kKeyEps) : 1.0f;
  });
  __syncthreads();  // no warp reads Q or K any more
  if (i < kChunk) store_factor(out, chunk * kChunk + i, factors[i]);
  // All elements are computed before the first is stored, so that the loads of their factors do not wait for stores.
  for_each_element(A, warp, [&](int t, int i, float& x) { x *= factors[t] * factors[i]; });
  note_alike(alike, A, warp, beta);
  for_each_element(A, warp, [&](int t, int i, float& x) { *memory.A(t, i) = x; });
  __syncwarp();  // each warp reads only its own block of the diagonal
  invert_diagonal_block(memory, warp);
  __syncthreads();
  BlockRow& X = A;
  inverse_row(X, memory, warp);
  for_each_element(X, warp, [&](int, int i, float& x) { x *= beta[i]; });
  store_inverse(out, chunk, X, warp, alike);
}

std::int64_t all_chunks(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * ceil_div(a.L, kChunk);
}

/// One block for each chunk.
template <bool kWithP = true, class Out>
void start_kernel(const Bf16Arguments& a, const Out& out, float least_beta) {
  const auto start = [&](auto kernel, int shared_bytes) {
    launch(kernel, {dim3(unsigned(out.N), unsigned(a.H), unsigned(a.B)), unsigned(kThreads), std::size_t(shared_bytes)},
           a, out, least_beta);
  };
  if (a.Dk <= 64) {
    start(prepare_kernel<64, Out, kWithP>, kSharedBytes<64>);
  } else if (a.Dk <= 128) {
    start(prepare_kernel<128, Out, kWithP>, kSharedBytes<128>);
  } else {
    start(prepare_kernel<256, Out, kWithP>, kSharedBytes<256>);
  }
}

PreparedTiles reserve_tiles(const Bf16Arguments& a) {
  return {ceil_div(a.L, kChunk), workspace<__nv_bfloat16>("delta_rule: tiles of T and P",
                                                          std::size_t(all_chunks(a)) * kPreparedRows * kChunk)};
}

}  // namespace

Prepared prepare(const Bf16Arguments& a, float least_beta) {
  const std::int64_t units = all_chunks(a) * kBlockUnits;
  auto* blocks = workspace<uint4>("delta_rule: T and P", std::size_t(3 * units));
  const Prepared prepared{ceil_div(a.L, kChunk), blocks, blocks + 2 * units,
                          workspace<float>("delta_rule: factors", std::size_t(all_chunks(a) * kChunk))};
  start_kernel(a, prepared, least_beta);
  return prepared;
}

std::int64_t prepared_memory(const Bf16Arguments& a) {
  return all_chunks(a) * (3 * kBlockUnits * std::int64_t(sizeof(uint4)) + kChunk * std::int64_t(sizeof(float)));
}

PreparedTiles prepare_tiles(const Bf16Arguments& a, float least_beta) {
  const PreparedTiles prepared = reserve_tiles(a);
  start_kernel(a, prepared, least_beta);
  return prepared;
}

PreparedTiles prepare_tiles_of_T(const Bf16Arguments& a) {
  const PreparedTiles prepared = reserve_tiles(a);
  start_kernel<false>(a, prepared, -INFINITY);
  return prepared;
}

TensorMap map_of(const PreparedTiles& x, const Bf16Arguments& a, int box) {
  const std::int64_t rows = std::int64_t(x.N) * kPreparedRows;
  return tile_map(packed(x.tiles, a.H, rows, kChunk), {a.B, a.H, rows, kChunk}, box);
}

std::int64_t prepared_tiles_memory(const Bf16Arguments& a) {
  return all_chunks(a) * kPreparedRows * kChunk * std::int64_t(sizeof(__nv_bfloat16));
}

}  // namespace tutorial::delta_rule
