#pragma once
/// @file
/// A block of `cluster` (dispatch/cluster.cu) or `three_blocks` (4_three_blocks.cu): what it has in the place of
/// parts of chunk/cluster_memory.cuh.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/cluster_memory.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/gated_matrices.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gated_delta_rule {

/// A block's shared memory: that of delta_rule's stages, with decays in the slots.
/// @tparam Sharing which blocks compute
template <class Shape, class Sharing = delta_rule::BothBlocks>
using ClusterMemory = delta_rule::ClusterMemory<Shape, GatedMatrices, GatedMatrixGroup, Sharing>;

/// Warpgroup `group` of computing block `rank` computes T and P of every fourth chunk of block (., h, b), for both
/// blocks that walk.
template <class Memory>
__device__ __forceinline__ void compute_shared_matrices(const Bf16Arguments& a, const Memory& memory, int rank,
                                                        int group) {
  using Sharing = typename Memory::Sharing;
  group = __shfl_sync(kAllLanes, group, 0);  // tells the compiler that it is the same in all lanes
  delta_rule::ClusterBarriers& barriers = memory.barriers();
  GatedMatrixGroup matrices = memory.matrix_group(group);
  const bool is_first = threadIdx.x % tile::kWarpgroup == 0;
  const int first = rank + Sharing::kComputing * group;
  // From one chunk of the warpgroup to the next the same step: fewer instructions than an address from its position.
  const std::int64_t beta_step = delta_rule::kGroups * tile::kChunk * a.beta.stride_l,
                     g_step = delta_rule::kGroups * tile::kChunk * a.g.stride_l;
  const float* beta_at = a.beta.row(int(blockIdx.z), int(blockIdx.y), first * tile::kChunk + matrices.position());
  const float* g_at = a.g.row(int(blockIdx.z), int(blockIdx.y), first * tile::kChunk + Gates::position());
  const auto load_next = [&](float& beta, Gates& gates, int n) {
    const int left = a.L - n * tile::kChunk;
    beta = lane_index() < kBlock && matrices.position() < left ? load_global(beta_at) : 0.0f;
    gates.load(g_at, a.g.stride_l, left);
    beta_at += beta_step, g_at += g_step;
  };
  matrices.clear(memory.matrices(first));
  float next_beta;
  Gates next_gates;
  load_next(next_beta, next_gates, first);
  for (int n = first; n * tile::kChunk < a.L; n += delta_rule::kGroups) {
    tile::WarpgroupScores K_K, Q_K;
    auto &keys = reinterpret_cast<BlockRow&>(K_K), &scores = reinterpret_cast<BlockRow&>(Q_K);
    SplitRow U;
    RoundedRow P;
    std::uint32_t P_diagonal[4];
    BlockSums A;
    const int own = hide_from_compiler(group), slot = n % delta_rule::kGroups, stage = memory.pair_stage(n);
    const auto K = memory.K(stage), Q = memory.Q(stage);
    barriers.pair_full[own].wait(unsigned(n) / delta_rule::kGroups % 2);
    wgmma_fence(K_K, Q_K);
    tile::start_scores(K_K, K, K);
    tile::start_scores(Q_K, Q, K);
    wgmma_commit();
    const float beta = next_beta;
    const float2 decays = matrices.put_sums(next_gates);
    wgmma_wait<0>(K_K, Q_K);
    if (lane_index() == 0) barriers.pair_empty[own].arrive();
    matrices.decay(P, P_diagonal, A, keys, scores, beta);
    load_next(next_beta, next_gates, n + delta_rule::kGroups);
    matrices.invert(U, A, keys, beta);
    if (n >= delta_rule::kGroups) {
      if (is_first) barriers.slot_free[own].arrive_expect(Sharing::kMessages * sizeof(barriers.inbox));
      barriers.slot_free[own].wait_cluster((unsigned(n) / delta_rule::kGroups - 1) % 2);
    }
    const GatedMatrices out = memory.matrices(slot);
    matrices.store(out, U, P, P_diagonal, decays);
    fence_async_proxy();
    wait_at_named_barrier(1 + unsigned(own), tile::kWarpgroup);
    if (is_first) {
      void* bytes = out.T.panel.data;
      const int peer = Sharing::kWalks ? 1 - rank : n % delta_rule::kWalking;
      push_shared(bytes, bytes, GatedMatrices::kBytes, barriers.matrices_full[slot], peer);
      if (Sharing::kWalks) barriers.matrices_full[slot].arrive();
    }
  }
}

}  // namespace tutorial::gated_delta_rule
