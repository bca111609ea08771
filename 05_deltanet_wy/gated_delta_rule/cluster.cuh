#pragma once
/// @file
/// A block of `cluster` (7_cluster.cu): what it has in the place of parts of delta_rule/cluster.cuh.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule/cluster.cuh"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule/gated_factors.cuh"
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

using delta_rule::kGroups;

/// A block's shared memory: that of delta_rule's `cluster`, with decays in the slots.
template <class Shape>
using ClusterMemory = delta_rule::ClusterMemory<Shape, GatedFactors, GatedFactorGroup>;

/// Warpgroup `group` of block `rank` computes T and P of every fourth chunk of block (., h, b), for both blocks.
template <class Shape>
__device__ __forceinline__ void compute_shared_factors(const Bf16Arguments& a, const ClusterMemory<Shape>& memory,
                                                       int rank, int group) {
  group = __shfl_sync(kAllLanes, group, 0);  // tells the compiler that it is the same in all lanes
  delta_rule::ClusterBarriers& barriers = memory.barriers();
  GatedFactorGroup factors = memory.factor_group(group);
  const auto K = memory.K(delta_rule::kClusterStages), Q = memory.Q(delta_rule::kClusterStages);
  const bool is_first = threadIdx.x % tile::kWarpgroup == 0;
  const int chunks = (a.L + tile::kChunk - 1) / tile::kChunk, first = rank + 2 * group;
  // From one chunk of the warpgroup to the next the same step: fewer instructions than an address from its position.
  const std::int64_t beta_step = kGroups * tile::kChunk * a.beta.stride_l,
                     g_step = kGroups * tile::kChunk * a.g.stride_l;
  const float* beta_at = a.beta.row(int(blockIdx.z), int(blockIdx.y), first * tile::kChunk + factors.position());
  const float* g_at = a.g.row(int(blockIdx.z), int(blockIdx.y), first * tile::kChunk + Gates::position());
  const auto load_next = [&](float& beta, Gates& gates, int n) {
    const int left = a.L - n * tile::kChunk;
    beta = lane_index() < kBlock && factors.position() < left ? load_global(beta_at) : 0.0f;
    gates.load(g_at, a.g.stride_l, left);
    beta_at += beta_step, g_at += g_step;
  };
  factors.clear(memory.factors(first));
  float next_beta;
  Gates next_gates;
  load_next(next_beta, next_gates, first);
  for (int n = first; n < chunks; n += kGroups) {
    tile::WarpgroupScores K_K, Q_K;
    auto &keys = reinterpret_cast<BlockRow&>(K_K), &scores = reinterpret_cast<BlockRow&>(Q_K);
    SplitRow U;
    RoundedRow P;
    std::uint32_t P_diagonal[4];
    BlockSums A;
    const unsigned round = unsigned(n) / kGroups;
    const int own = hide_from_compiler(group), slot = n % kGroups;
    barriers.pair_full[own].wait(round % 2);
    wgmma_fence(K_K, Q_K);
    tile::start_scores(K_K, K, K);
    tile::start_scores(Q_K, Q, K);
    wgmma_commit();
    const float beta = next_beta;
    const float2 decays = factors.put_sums(next_gates);
    wgmma_wait<0>(K_K, Q_K);
    if (lane_index() == 0) barriers.pair_empty[own].arrive();
    factors.decay(P, P_diagonal, A, keys, scores, beta);
    load_next(next_beta, next_gates, n + kGroups);
    factors.invert(U, A, keys, beta);
    if (round > 0) {
      if (is_first) barriers.slot_free[own].arrive_expect(sizeof(barriers.inbox));
      barriers.slot_free[own].wait_cluster((round - 1) % 2);
    }
    const GatedFactors out = memory.factors(slot);
    factors.store(out, U, P, P_diagonal, decays);
    fence_async_proxy();
    wait_at_named_barrier(1 + group, tile::kWarpgroup);
    if (is_first) {
      void* bytes = out.T.panel.data;
      push_shared(bytes, bytes, GatedFactors::kBytes, barriers.factors_full[slot], 1 - rank);
      barriers.factors_full[slot].arrive();
    }
  }
}

}  // namespace tutorial::gated_delta_rule
