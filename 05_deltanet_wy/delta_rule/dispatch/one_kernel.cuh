#pragma once
/// @file
/// A block of `one_kernel` (one_kernel.cu): its shared memory, and what the warpgroups do that compute T and P.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/matrices.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

inline constexpr int kPipelineDepth = 4;  ///< tiles of Q and K in shared memory
inline constexpr int kStages = 2;         ///< tiles of V, and T and P

/// A block's shared memory.
template <class Shape>
struct BlockMemory {
  using KeyTile = typename Shape::KeyTile;  ///< Q or K

  static constexpr int kKeyBytes = tile::kChunk * Shape::kDk * int(sizeof(__nv_bfloat16));
  static constexpr int kValueBytes = int(ValuePanel::kPanelBytes);
  static constexpr int kV = 2 * kPipelineDepth * kKeyBytes, kMatrices = kV + kStages * kValueBytes;
  static constexpr int kO = kMatrices + kStages * ChunkMatrices::kBytes, kSplit = kO + kValueBytes;
  static constexpr int kBytes = kSplit + 2 * SplitBlocks::kBytes;

  unsigned char* memory;  ///< kBytes, aligned to 1024

  /// A tile of K.
  __device__ __forceinline__ KeyTile K(int stage) const { return {at(2 * stage * kKeyBytes)}; }
  /// A tile of Q.
  __device__ __forceinline__ KeyTile Q(int stage) const { return {at((2 * stage + 1) * kKeyBytes)}; }
  /// A tile of V.
  __device__ __forceinline__ ValuePanel V(int stage) const { return {at(kV + stage * kValueBytes)}; }
  /// The tile of O.
  __device__ __forceinline__ ValuePanel O() const { return {at(kO)}; }
  /// T and P.
  __device__ __forceinline__ ChunkMatrices matrices(int stage) const {
    return ChunkMatrices(memory + kMatrices + stage * ChunkMatrices::kBytes);
  }
  /// What warpgroup 0 or 1 of those that compute matrices needs for itself.
  __device__ __forceinline__ MatrixGroup matrix_group(int group) const {
    return MatrixGroup(group, memory + kSplit + group * SplitBlocks::kBytes);
  }

 private:
  __device__ __forceinline__ __nv_bfloat16* at(int offset) const {
    return reinterpret_cast<__nv_bfloat16*>(memory + offset);
  }
};

/// One of two warpgroups computes T and P of every second chunk, from the first or the second one on, for block (., h,
/// b).
/// @param full,empty tiles of Q and K are there, and free
/// @param matrices_full,matrices_empty the same of T and P
template <class Shape>
__device__ __forceinline__ void compute_matrices(const Bf16Arguments& a, const BlockMemory<Shape>& memory, int group,
                                                 Barrier* full, Barrier* empty, Barrier* matrices_full,
                                                 Barrier* matrices_empty) {
  group = __shfl_sync(kAllLanes, group, 0);  // tells the compiler that it is the same in all lanes
  MatrixGroup matrices = memory.matrix_group(group);
  const ChunkMatrices out = memory.matrices(group);
  const auto beta_of = [&](int t) {
    const int position = t + matrices.position();
    return lane_index() < kBlock && position < a.L ? load_global(a.beta.row(int(blockIdx.z), int(blockIdx.y), position))
                                                   : 0.0f;
  };
  auto ring = Ring<kPipelineDepth>::consumer();
  auto matrix_ring = Ring<1>::producer();  // T and P of every second chunk lie in the same place
  if (group == 1) ring.advance();
  matrices.clear(out);
  float next_beta = beta_of(group * tile::kChunk);
  for (int t = group * tile::kChunk; t < a.L; t += 2 * tile::kChunk) {
    tile::WarpgroupScores K_K, Q_K;
    SplitRow U;
    RoundedRow P;
    const float beta = next_beta;
    next_beta = beta_of(t + 2 * tile::kChunk);
    ring.wait(full);
    wgmma_fence(K_K);
    tile::start_scores(K_K, memory.K(ring.stage()), memory.K(ring.stage()));
    wgmma_commit();
    wgmma_wait<0>(K_K);
    wait_at_named_barrier(1 + group, tile::kWarpgroup);  // no warp needs what the chunk before has left
    matrices.invert(U, K_K, beta);
    const int stage = hide_from_compiler(ring.stage());
    wgmma_fence(Q_K);
    tile::start_scores(Q_K, memory.Q(stage), memory.K(stage));
    wgmma_commit();
    matrix_ring.wait(matrices_empty + group);
    wgmma_wait<0>(Q_K);
    if (lane_index() == 0) empty[ring.stage()].arrive();
    matrices.round(P, Q_K);
    matrices.store(out, U, P);
    fence_async_proxy();
    __syncwarp();
    if (lane_index() == 0) matrices_full[group].arrive();
    matrix_ring.advance();
    ring.advance(), ring.advance();
  }
}

}  // namespace tutorial::delta_rule
