/// @file
/// The kernel that runs first in `two_products`: rows and scores of prepare_decayed.cuh, and T is multiplied into K- and P
/// before anything is written.
///
/// Idea: T has two bf16, and the walk multiplies a residual by both and then K- and P by the result. J = T^T K- and R =
/// P T need T's digits only while they are formed, so one bf16 of each is enough, and K-, T and P stay in shared memory.
/// Both are products of the warpgroup. The inverse is that of delta_rule's `cluster` (warpgroup_inverse.cuh).
///
///     warp                          0         1         2         3
///     rows, and pairs of them     r = 0     r = 1     r = 2     r = 3
///     row of P, A, W and R        row 3     row 2     row 1     row 0
///     row of U = -T, rows of J    row 0     row 1     row 2     row 3
///
/// Shapes: q, k [B, H, L, Dk] bf16, g [B, H, L, Dk] and beta [B, H, L] fp32 in; PreparedUpdates out.
/// Thread mapping: block (n, h, b) computes chunk n of head (b, h).
/// Synchronization: five barriers: rows and their scores are there; the scores are read, and K- takes the place of its
/// rows; U_cc is there, and nobody reads q~ and k+~ any more; W is there; U and K- are there. A warp stores its rows of
/// J and R as soon as it has them.
/// Resources: 60 KB of shared memory and 168 registers per thread: three blocks per multiprocessor.
/// Bytes: as prepare_decayed.cuh, but for T, P and K-: 2 Dk bytes of J and 128 of R per position.
/// Requires: compute capability 9.0, Dk a multiple of 16, at most 128; rows aligned to 16 bytes.
/// Sources: those of prepare_decayed.cuh; FlashInfer's delta rule for Hopper, since version 0.7, which keeps J for segments.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/kda/prepare_chunk.cuh"
#include "05_deltanet_wy/kda/prepare_updates.hpp"
#include "05_deltanet_wy/kda/store_J_and_R.cuh"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/tensor_map.hpp"
#include "common/device/wgmma.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

/// What lies where in a block's shared memory. Tiles of J and U take the place of rows.
template <int kDk>
struct UpdateMemory {
  static constexpr int kTile = kChunk * 128 * 2;  ///< bytes of a tile, at Dk = 64, too
  static constexpr int kSplit = 3 * kTile, kDecays = kSplit + SplitBlocks::kBytes;
  static constexpr int kBytes = kDecays + 4 * kSubChunks * kDk;
  static_assert(2 * 4 * kChunk * kSubChunk <= SplitBlocks::kBytes, "the blocks lie where the scores were");
  static_assert(SquarePanel::kPanelBytes <= SplitBlocks::kBytes, "R lies where the blocks were");

  unsigned char* memory;  ///< kBytes, aligned to 1024

  __device__ __forceinline__ ChunkMemory<kDk> rows() const {
    return {at(0), at(kTile), at(2 * kTile), reinterpret_cast<float*>(memory + kDecays),
            reinterpret_cast<float*>(memory + kSplit)};
  }
  __device__ __forceinline__ SplitBlocks blocks() const { return {at(kSplit)}; }
  /// U in two bf16, where q~ was.
  __device__ __forceinline__ SquarePanel U(int part) const { return {at(0) + part * SquarePanel::kPanelElements}; }
  __device__ __forceinline__ PanelTile<kDk> J() const { return {at(kTile)}; }  ///< where k+~ was
  __device__ __forceinline__ SquarePanel R() const { return {at(kSplit)}; }

 private:
  __device__ __forceinline__ __nv_bfloat16* at(int offset) const {
    return reinterpret_cast<__nv_bfloat16*>(memory + offset);
  }
};

/// Grid (N, H, B).
template <int kDk>
__global__ void __launch_bounds__(kThreads, 3)
    prepare_updates_kernel(Bf16Arguments a, PreparedUpdates out, const __grid_constant__ UpdateMaps maps) {
  __shared__ float beta[kChunk], factors[kChunk];
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), t = n * kChunk, rows = a.L - t;
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * out.N + n;
  // The shuffle tells the compiler that `warp` is the same in all lanes. Branches around products depend on it.
  const int thread = int(threadIdx.x), warp = __shfl_sync(kAllLanes, thread / 32, 0);
  const UpdateMemory<kDk> memory{dynamic_shared<unsigned char, kTileAlignment>()};
  const ChunkMemory<kDk> chunk_rows = memory.rows();
  const SplitBlocks blocks = memory.blocks();

  // The load runs while the rows are prepared.
  const float strength = thread < min(rows, kChunk) ? load_global(a.beta.row(b, h, t + thread)) : 0.0f;
  prepare_sub_chunk(chunk_rows, a, b, h, t, warp);
  find_factors(factors + warp * kSubChunk, a, b, h, t + warp * kSubChunk);
  if (thread < kChunk) beta[thread] = strength;
  __syncthreads();

  // The warp with the most blocks here has the fewest in the inverse.
  const int r = kBlocks - 1 - warp;
  BlockRow P = {}, N = {};
  decayed_products(P, N, chunk_rows, r);
  for_each_element(P, r, [&](int t, int i, float& x) {
    x *= factors[i];
    if (i > t) x = 0;
  });
  for_each_element(N, r, [&](int t, int i, float& x) { x *= factors[t] * factors[i]; });
  ScoreFragments rounded_P;
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) rounded_P[c][i] = pack(P[c][i / 2][i % 2 * 2], P[c][i / 2][i % 2 * 2 + 1]);
  }
  __syncthreads();  // no warp reads scores, or rows by ldmatrix, any more

  BlockSums diagonal = {};
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    const float is_own = c == r;  // a choice of N[c] would put N into local memory
#pragma unroll
    for (int i = 0; i < 8; ++i) diagonal[i / 4][i % 4] += is_own * N[c][i / 4][i % 4];
  }
  for_each_of_block(diagonal, [&](int t, int, float& x) { x *= -beta[r * kBlock + t]; });
  put_inverse(blocks, r, diagonal, -beta[r * kBlock + thread % kBlock]);
  const auto put = [&](__nv_bfloat16* rows) {
    rows += chunk * kChunk * a.Dk;
    return [=](int row, int column, uint4 x) { store_global(reinterpret_cast<uint4*>(rows + row * a.Dk + column), x); };
  };
  for_each_decayed_unit(chunk_rows, factors, out.decays + chunk * a.Dk, a.Dk, put(out.Q), put(out.K),
                        [](void* place, int, int, uint4 x) { store_for_copies(static_cast<uint4*>(place), x); });
  __syncthreads();  // all U_cc are there, and rows of queries are not needed any more
  switch (r) {      // the number of blocks is a constant in each case, so that their products overlap
    case 1:
      put_products<1>(blocks, N);
      break;
    case 2:
      put_products<2>(blocks, N);
      break;
    case 3:
      put_products<3>(blocks, N);
      break;
  }
  __syncthreads();
  SplitRow U;
  switch (warp) {
    case 0:
      multiply_row<0>(U, blocks);
      break;
    case 1:
      multiply_row<1>(U, blocks);
      break;
    case 2:
      multiply_row<2>(U, blocks);
      break;
    case 3:
      multiply_row<3>(U, blocks);
      break;
  }
  put_row(memory.U(0), memory.U(1), U, warp);
  fence_async_proxy();
  __syncthreads();

  // -R = P U, and -J = U^T K-. The sums of R begin with row r of the blocks in each warp.
  WarpgroupScores R;
  WarpgroupState<kDk> J;
  const auto K_end = k_from_row_to_row(chunk_rows.K_end);
  wgmma_fence(R, J, rounded_P);
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const auto u = k_from_row_to_row(memory.U(part));
#pragma unroll
    for (int i = 0; i < kChunk; i += 16) wgmma<kChunk>(R, rounded_P[i / 16], u.along_k(i), part + i > 0);
  }
  wgmma_commit();
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const auto u = k_from_row_to_row(memory.U(part));
#pragma unroll
    for (int i = 0; i < kChunk; i += 16) wgmma<kDk>(J, u.along_k(i), K_end.along_k(i), part + i > 0);
  }
  wgmma_commit();
  wgmma_wait<1>(R);
  store_sums(memory.R(), maps.R, R, r * kBlock, {.position = t + r * kBlock, .head = h, .batch = b});
  wgmma_wait<0>(J);
  store_sums(memory.J(), maps.J, J, warp * kBlock, {.position = t + warp * kBlock, .head = h, .batch = b});
  if (lane_index() == 0) {
    commit_stores();
    wait_stores_read<0>();
  }
}

std::int64_t all_chunks(const Bf16Arguments& a) {
  return std::int64_t(a.B) * a.H * ceil_div(a.L, kChunk);
}

}  // namespace

PreparedUpdates reserve_updates(const Bf16Arguments& a) {
  const std::int64_t chunks = all_chunks(a), elements = chunks * kChunk * a.Dk;
  auto* rows = workspace<__nv_bfloat16>("kda: decayed q and k", std::size_t(3 * elements));
  return {ceil_div(a.L, kChunk),
          rows,
          rows + elements,
          rows + 2 * elements,
          workspace<__nv_bfloat16>("kda: R", std::size_t(chunks * kChunk * kChunk)),
          workspace<float>("kda: decays of chunks", std::size_t(chunks * a.Dk))};
}

PreparedUpdates prepare_updates(const Bf16Arguments& a) {
  const PreparedUpdates out = reserve_updates(a);
  const auto start = [&](auto kernel, int shared_bytes) {
    launch(kernel, {dim3(unsigned(out.N), unsigned(a.H), unsigned(a.B)), unsigned(kThreads), std::size_t(shared_bytes)},
           a, out, stored_maps(out, a));
  };
  if (a.Dk <= 64) {
    start(prepare_updates_kernel<64>, UpdateMemory<64>::kBytes);
  } else {
    start(prepare_updates_kernel<128>, UpdateMemory<128>::kBytes);
  }
  return out;
}

std::int64_t prepared_updates_memory(const Bf16Arguments& a) {
  return all_chunks(a) * (3 * kChunk * 2 * std::int64_t(a.Dk) + kChunk * kChunk * 2 + 4 * std::int64_t(a.Dk));
}

}  // namespace tutorial::kda
