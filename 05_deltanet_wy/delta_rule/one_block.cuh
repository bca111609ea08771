#pragma once
/// @file
/// A block of `one_block` (17_one_block.cu): its shared memory, and what all its warps do but the chains.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/chunk_factors.cuh"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "common/device/bulk_copy.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

inline constexpr int kChains = 2;  ///< of a block, with 64 columns each
inline constexpr int kPairs = 4;   ///< pairs of Q and K in shared memory
inline constexpr int kPlaces = 2;  ///< of V and O, of T and P, and of blocks

/// A block's shared memory.
template <class Shape>
struct OneBlockMemory {
  using KeyTile = typename Shape::KeyTile;  ///< Q or K

  static constexpr int kKeyBytes = tile::kChunk * Shape::kDk * int(sizeof(__nv_bfloat16));
  static constexpr int kValueBytes = int(ValuePanel::kPanelBytes);  ///< of a chain
  static constexpr int kV = 2 * kPairs * kKeyBytes, kFactors = kV + kPlaces * kChains * kValueBytes;
  static constexpr int kSplit = kFactors + kPlaces * ChunkFactors::kBytes;
  static constexpr int kBytes = kSplit + kPlaces * SplitBlocks::kBytes;

  unsigned char* memory;  ///< kBytes, aligned to 1024

  /// A tile of K.
  __device__ __forceinline__ KeyTile K(int stage) const { return {at(2 * stage * kKeyBytes)}; }
  /// A tile of Q.
  __device__ __forceinline__ KeyTile Q(int stage) const { return {at((2 * stage + 1) * kKeyBytes)}; }
  /// A chain's columns of V, and later of O.
  __device__ __forceinline__ ValuePanel V(int stage, int chain) const {
    return {at(kV + (stage * kChains + chain) * kValueBytes)};
  }
  /// T and P.
  __device__ __forceinline__ ChunkFactors factors(int stage) const {
    return ChunkFactors(memory + kFactors + stage * ChunkFactors::kBytes);
  }
  /// The blocks from which T is computed.
  __device__ __forceinline__ SplitBlocks blocks(int stage) const { return {at(kSplit + stage * SplitBlocks::kBytes)}; }

 private:
  __device__ __forceinline__ __nv_bfloat16* at(int offset) const {
    return reinterpret_cast<__nv_bfloat16*>(memory + offset);
  }
};

/// A block's barriers.
struct OneBlockBarriers {
  Barrier full[kPairs], empty[kPairs];                               ///< Q and K
  Barrier v_full[kPlaces], output_full[kPlaces];                     ///< V, and O in the same place
  Barrier diagonal_full[kPlaces], diagonal_inverted[kPlaces];        ///< -A_cc, and U_cc in the same place
  Barrier T_full[kPlaces], P_full[kPlaces], factors_empty[kPlaces];  ///< T and P, and their slot

  /// Called by one thread of the block.
  __device__ __forceinline__ void init() {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 + 4 * kChains);  // the warps that compute T, and those of the chains
    for (int i = 0; i < kPlaces; ++i) v_full[i].init(1), output_full[i].init(4 * kChains);
    for (int i = 0; i < kPlaces; ++i) diagonal_full[i].init(4), diagonal_inverted[i].init(2);
    for (int i = 0; i < kPlaces; ++i) T_full[i].init(4), P_full[i].init(4);
    for (Barrier& barrier : factors_empty) barrier.init(4 * kChains);
    fence_barrier_init();
  }
};

/// One thread loads Q and K.
template <class Shape>
__device__ __forceinline__ void load_pairs(const Bf16Arguments& a, const tile::ChunkMaps& maps,
                                           const OneBlockMemory<Shape>& memory, OneBlockBarriers& barriers) {
  using namespace tile;
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  auto ring = Ring<kPairs>::producer();
  for (int t = 0; t < a.L; t += kChunk) {
    ring.wait(barriers.empty);
    barriers.full[ring.stage()].arrive_expect(2 * OneBlockMemory<Shape>::kKeyBytes);
    load_panels(memory.K(ring.stage()), maps.k, barriers.full[ring.stage()], {.position = t, .head = h, .batch = b});
    load_panels(memory.Q(ring.stage()), maps.q, barriers.full[ring.stage()], {.position = t, .head = h, .batch = b});
    ring.advance();
  }
}

/// One thread stores O, and loads V into the same place.
template <class Shape>
__device__ __forceinline__ void move_values(const Bf16Arguments& a, const tile::ChunkMaps& maps, const TensorMap& o,
                                            const OneBlockMemory<Shape>& memory, OneBlockBarriers& barriers) {
  using namespace tile;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * kChains * Shape::kDv;
  auto ring = Ring<kPlaces>::consumer();
  const int chains = min(kChains, (a.Dv - first_column - 1) / Shape::kDv + 1);  // that have columns
  const auto load_values = [&](int t, int stage) {
    if (t >= a.L) return;
    barriers.v_full[stage].arrive_expect(chains * OneBlockMemory<Shape>::kValueBytes);
    for (int i = 0; i < chains; ++i) {
      load_panels(memory.V(stage, i), maps.v, barriers.v_full[stage],
                  {.column = first_column + i * Shape::kDv, .position = t, .head = h, .batch = b});
    }
  };
  for (int i = 0; i < kPlaces; ++i) load_values(i * kChunk, i);
  for (int t = 0; t < a.L; t += kChunk) {
    ring.wait(barriers.output_full);
    for (int i = 0; i < chains; ++i) {
      store_tile(o, memory.V(ring.stage(), i).data,
                 {.column = first_column + i * Shape::kDv, .position = t, .head = h, .batch = b});
    }
    commit_stores();
    wait_stores_read<0>();
    load_values(t + kPlaces * kChunk, ring.stage());
    ring.advance();
  }
}

/// Two neighbouring warps, the first with an even number, invert the blocks on the diagonal, two each.
template <class Shape>
__device__ __forceinline__ void invert_diagonals(const Bf16Arguments& a, const OneBlockMemory<Shape>& memory,
                                                 OneBlockBarriers& barriers) {
  using namespace tile;
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first = int(threadIdx.x) % kWarpgroup / 32 % 2 * 2;  // of two blocks on the diagonal
  auto ring = Ring<kPlaces>::consumer();
  const auto beta_of = [&](int t) {
    const int position = t + first * kBlock + int(lane_index());
    return position < a.L ? load_global(a.beta.row(b, h, position)) : 0.0f;
  };
  float beta = beta_of(0);
  for (int t = 0; t < a.L; t += kChunk) {
    ring.wait(barriers.diagonal_full);
    put_two_inverses(memory.blocks(ring.stage()), first, -beta);
    __syncwarp();
    if (lane_index() == 0) barriers.diagonal_inverted[ring.stage()].arrive();
    ring.advance();
    beta = beta_of(t + kChunk);
  }
}

/// A warpgroup computes T of all chunks, but for the inverses on the diagonal.
template <class Shape>
__device__ __forceinline__ void compute_inverses(const Bf16Arguments& a, const OneBlockMemory<Shape>& memory,
                                                 OneBlockBarriers& barriers) {
  using namespace tile;
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const FactorGroup rows(0, nullptr);  // the blocks change with the chunk
  const auto beta_of = [&](int t) {
    const int position = t + rows.position();
    return lane_index() < kBlock && position < a.L ? load_global(a.beta.row(b, h, position)) : 0.0f;
  };
  auto ring = Ring<kPairs>::consumer();
  auto block_ring = Ring<kPlaces>::consumer();
  auto factor_ring = Ring<kPlaces>::producer();
  for (int i = 0; i < kPlaces; ++i) rows.clear(memory.factors(i).T);
  float beta = beta_of(0);
  WarpgroupScores K_K, N;
  // K K^T of the chunk that ring points to. After the last chunk it is computed from whatever lies there, and not used:
  // under a condition the compiler would wait for the product at once.
  const auto start_keys = [&](bool exists) {
    if (exists) ring.wait(barriers.full);
    wgmma_fence(K_K);
    start_scores(K_K, memory.K(ring.stage()), memory.K(ring.stage()));
    wgmma_commit();
  };
  // N = K K^T. The warps that invert get -A_cc: its blocks on the diagonal times -beta.
  const auto put_diagonal = [&](int t, int stage) {
    if (lane_index() == 0) barriers.empty[ring.stage()].arrive();
    ring.advance();
#pragma unroll
    for (int i = 0; i < kChunk / 2; ++i) N[i] = K_K[i];
    rows.put_diagonal(memory.blocks(stage), N, beta);
    __syncwarp();
    if (lane_index() == 0) barriers.diagonal_full[stage].arrive();
    beta = beta_of(t + kChunk);  // here, so that the shuffles of beta do not wait for the next load
  };
  start_keys(true);
  wgmma_wait<0>(K_K);
  put_diagonal(0, 0);
  for (int t = 0; t < a.L; t += kChunk) {
    const bool has_next = t + kChunk < a.L;
    const SplitBlocks blocks = memory.blocks(block_ring.stage());
    block_ring.wait(barriers.diagonal_inverted);
    block_ring.advance();
    rows.put_row(blocks, N);
    start_keys(has_next);
    wait_at_named_barrier(1, kWarpgroup);  // all rows of W are there
    wgmma_wait<0>(K_K);
    if (has_next) put_diagonal(t + kChunk, block_ring.stage());
    SplitRow U = {};
    rows.multiply(U, blocks);
    factor_ring.wait(barriers.factors_empty);
    rows.store_lower(memory.factors(factor_ring.stage()).T, U);
    fence_async_proxy();
    __syncwarp();
    if (lane_index() == 0) barriers.T_full[factor_ring.stage()].arrive();
    factor_ring.advance();
  }
}

}  // namespace tutorial::delta_rule
