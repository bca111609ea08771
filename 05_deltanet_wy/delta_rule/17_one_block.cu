/// @file
/// Stage 17, `one_block`: a head in one block, with two chains.
///
/// Idea: with a head for every multiprocessor, nothing has to be shared between multiprocessors. A block walks with all
/// 128 columns of Dv, in two warpgroups of 64 columns. So Q, K, T and P are in shared memory once for both, and nothing
/// is pushed. Each chain has twice the time of a chunk, and waits for each of its products. While one chain waits, the
/// tensor cores compute for the other one.
///
/// One warpgroup is left for T and P, and by itself it takes too long. So three others do a part of its work:
///
///     two warps of warpgroup 0 | diagonal of n + 1          | diagonal of n + 2
///     warpgroup 1              | rows of T of n             | rows of T of n + 1
///     chain 0                  | n - 1             P of n   | n
///     chain 1                  | n - 1                      | n          P of n + 1
///
/// - Two warps invert the four blocks on the diagonal of I + A, two blocks each.
/// - The chains compute P: one of them for even chunks, the other one for odd ones.
///
/// Grows out of: 14_one_kernel.cu
/// Improves on: in `cluster` a head reads Q and K three times per 128 columns, and T and P of each chunk pass from one
/// multiprocessor to another. All of that takes power, which limits many heads on an H200.
/// Unchanged: what is rounded, and what is computed in which order: the results are the same to the last bit.
///
/// Equation, shapes: those of `fused`, without T and P.
/// Thread mapping: block (x, h, b) walks over the chunks of a head with 128 columns of Dv. Warpgroups 2 and 3 are the
/// chains. Of warpgroup 0 one thread loads Q and K, one stores O and loads V, and warps 2 and 3 invert.
/// Synchronization: -A_cc and its inverse lie in the place of block (c, c), in one of two sets of blocks. Warpgroup 1
/// puts the four -A_cc there (`diagonal_full`), and two warps return the inverses (`inverse_full`). While they do,
/// warpgroup 1 multiplies the blocks of the chunk before, in the other set. K K^T of the next chunk starts only behind
/// these products: mma would otherwise wait for the tensor cores. T (`inverses_full`) and P (`scores_full`) lie in one
/// of two slots, which is free (`factors_empty`) when both chains have read it. Outputs take the place of the values of
/// their chunk: each warp writes the columns that it has read. One thread stores a tile of outputs, and then loads the
/// values of two chunks later into it.
/// Resources: at Dk = 128 four tiles of Q and K, two of V and O, T and P of two chunks and two sets of blocks: 220 KB of
/// shared memory, one block per multiprocessor. Registers per thread: 64 for loads, stores and the diagonal, 96 for T,
/// and 176 for a chain. That is enough because residual and outputs share an array.
/// Work: 6 Dk Dv + 320 Dv operations per position on tensor cores, 256 Dk per 128 columns, and the inverse.
/// Bytes: v and o once; q and k once per 128 columns, beta twice.
/// Bound by: the steps of an inverse, nearly; and the power of an H200.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: it needs a head for every multiprocessor. A chain takes longer for a chunk than in `cluster`. With Dv <= 64
/// the second chain is in vain.
/// Source: two warpgroups with half of the columns of a head each: FlashInfer's delta rule for Hopper.

#include <cuda_runtime.h>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/chunk_factors.cuh"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "common/device/bulk_copy.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kBlockThreads = 4 * kWarpgroup;  // of a block
constexpr int kChains = 2;                     // of it, with 64 columns each
constexpr int kPipelineDepth = 4;              // tiles of Q and K in shared memory
constexpr int kStages = 2;                     // of V and O, of T and P, and of blocks

template <class Shape>
struct BlockMemory {
  using KeyTile = typename Shape::KeyTile;  // Q or K

  static constexpr int kKeyBytes = kChunk * Shape::kDk * int(sizeof(__nv_bfloat16));
  static constexpr int kValueBytes = int(ValuePanel::kPanelBytes);  // of a chain
  static constexpr int kV = 2 * kPipelineDepth * kKeyBytes, kFactors = kV + kStages * kChains * kValueBytes;
  static constexpr int kSplit = kFactors + kStages * ChunkFactors::kBytes;
  static constexpr int kBytes = kSplit + kStages * SplitBlocks::kBytes;

  unsigned char* memory;  // kBytes, aligned to 1024

  __device__ __forceinline__ KeyTile K(int stage) const { return {at(2 * stage * kKeyBytes)}; }
  __device__ __forceinline__ KeyTile Q(int stage) const { return {at((2 * stage + 1) * kKeyBytes)}; }
  // A chain's columns of V, and later of O.
  __device__ __forceinline__ ValuePanel V(int stage, int chain) const {
    return {at(kV + (stage * kChains + chain) * kValueBytes)};
  }
  __device__ __forceinline__ ChunkFactors factors(int stage) const {
    return ChunkFactors(memory + kFactors + stage * ChunkFactors::kBytes);
  }
  __device__ __forceinline__ SplitBlocks blocks(int stage) const { return {at(kSplit + stage * SplitBlocks::kBytes)}; }

 private:
  __device__ __forceinline__ __nv_bfloat16* at(int offset) const {
    return reinterpret_cast<__nv_bfloat16*>(memory + offset);
  }
};

/// Grid (tiles of 128 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    one_block_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, const __grid_constant__ TensorMap o) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * kChains * Shape::kDv;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier v_full[kStages], output_full[kStages], diagonal_full[kStages], inverse_full[kStages];
  __shared__ Barrier inverses_full[kStages], scores_full[kStages], factors_empty[kStages];
  const BlockMemory<Shape> memory{dynamic_shared<unsigned char, kTileAlignment>()};

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 + 4 * kChains);  // the warps that compute T, and those of the chains
    for (int i = 0; i < kStages; ++i) v_full[i].init(1), output_full[i].init(4 * kChains);
    for (int i = 0; i < kStages; ++i) diagonal_full[i].init(4), inverse_full[i].init(2);
    for (int i = 0; i < kStages; ++i) inverses_full[i].init(4), scores_full[i].init(4);
    for (Barrier& barrier : factors_empty) barrier.init(4 * kChains);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<64>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(2 * BlockMemory<Shape>::kKeyBytes);
        load_panels(memory.K(ring.stage()), maps.k, full[ring.stage()], {.position = t, .head = h, .batch = b});
        load_panels(memory.Q(ring.stage()), maps.q, full[ring.stage()], {.position = t, .head = h, .batch = b});
        ring.advance();
      }
    } else if (thread == 32) {
      auto ring = Ring<kStages>::consumer();
      const int chains = min(kChains, (a.Dv - first_column - 1) / Shape::kDv + 1);  // that have columns
      const auto load_values = [&](int t, int stage) {
        if (t >= a.L) return;
        v_full[stage].arrive_expect(chains * BlockMemory<Shape>::kValueBytes);
        for (int i = 0; i < chains; ++i) {
          load_panels(memory.V(stage, i), maps.v, v_full[stage],
                      {.column = first_column + i * Shape::kDv, .position = t, .head = h, .batch = b});
        }
      };
      for (int i = 0; i < kStages; ++i) load_values(i * kChunk, i);
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(output_full);
        for (int i = 0; i < chains; ++i) {
          store_tile(o, memory.V(ring.stage(), i).data,
                     {.column = first_column + i * Shape::kDv, .position = t, .head = h, .batch = b});
        }
        commit_stores();
        wait_stores_read<0>();
        load_values(t + kStages * kChunk, ring.stage());
        ring.advance();
      }
    } else if (thread >= 64) {
      const int first = (thread - 64) / 32 * 2;  // of two blocks on the diagonal
      auto ring = Ring<kStages>::consumer();
      const auto beta_of = [&](int t) {
        const int position = t + first * kBlock + int(lane_index());
        return position < a.L ? load_global(a.beta.row(b, h, position)) : 0.0f;
      };
      float beta = beta_of(0);
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(diagonal_full);
        put_two_inverses(memory.blocks(ring.stage()), first, -beta);
        __syncwarp();
        if (lane_index() == 0) inverse_full[ring.stage()].arrive();
        ring.advance();
        beta = beta_of(t + kChunk);
      }
    }
  } else if (group == 1) {
    decrease_registers<96>();
    const FactorGroup rows(0, nullptr);  // the blocks change with the chunk
    const auto beta_of = [&](int t) {
      const int position = t + rows.position();
      return lane_index() < kBlock && position < a.L ? load_global(a.beta.row(b, h, position)) : 0.0f;
    };
    auto ring = Ring<kPipelineDepth>::consumer();
    auto block_ring = Ring<kStages>::consumer();
    auto factor_ring = Ring<kStages>::producer();
    for (int i = 0; i < kStages; ++i) rows.clear(memory.factors(i).T);
    float beta = beta_of(0);
    WarpgroupScores K_K, N;
    // K K^T of the chunk of ring. Behind the last chunk it is computed of what lies there, and not used: a condition
    // would make the compiler wait for the product at once.
    const auto start_keys = [&](bool exists) {
      if (exists) ring.wait(full);
      wgmma_fence(K_K);
      start_scores(K_K, memory.K(ring.stage()), memory.K(ring.stage()));
      wgmma_commit();
    };
    // N = K K^T. Its blocks on the diagonal go to the warps that invert them.
    const auto put_diagonal = [&](int t, int stage) {
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) N[i] = K_K[i];
      rows.put_diagonal(memory.blocks(stage), N, beta);
      __syncwarp();
      if (lane_index() == 0) diagonal_full[stage].arrive();
      beta = beta_of(t + kChunk);  // here, so that the shuffles of beta do not wait for the next load
    };
    start_keys(true);
    wgmma_wait<0>(K_K);
    put_diagonal(0, 0);
    for (int t = 0; t < a.L; t += kChunk) {
      const bool has_next = t + kChunk < a.L;
      const SplitBlocks blocks = memory.blocks(block_ring.stage());
      block_ring.wait(inverse_full);
      block_ring.advance();
      rows.put_row(blocks, N);
      start_keys(has_next);
      wait_at_named_barrier(1, kWarpgroup);  // all rows of W are there
      wgmma_wait<0>(K_K);
      if (has_next) put_diagonal(t + kChunk, block_ring.stage());
      SplitRow U = {};
      rows.multiply(U, blocks);
      factor_ring.wait(factors_empty);
      rows.store_lower(memory.factors(factor_ring.stage()).T, U);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) inverses_full[factor_ring.stage()].arrive();
      factor_ring.advance();
    }
  } else {
    increase_registers<176>();
    const int chain = __shfl_sync(kAllLanes, group - 2, 0);  // tells the compiler that it is the same in all lanes
    const int column = first_column + chain * Shape::kDv, columns = min(Shape::kDv, a.Dv - column);
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto v_ring = Ring<kStages>::consumer();
    auto factor_ring = Ring<kStages>::consumer();
    auto scores_ring = Ring<kStages>::producer();       // one chunk ahead
    auto pair_ring = Ring<kPipelineDepth>::consumer();  // and so is this one
    const int unit = first_unit_of_columns();
    WarpgroupScores Q_K;
    // Q K^T of the chunk of pair_ring.
    const auto start_queries = [&] {
      pair_ring.wait(full);
      wgmma_fence(Q_K);
      start_scores(Q_K, memory.Q(pair_ring.stage()), memory.K(pair_ring.stage()));
      wgmma_commit();
    };
    const auto put_scores = [&] {
      scores_ring.wait(factors_empty);
      store_masked_scores(memory.factors(scores_ring.stage()).P, Q_K);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) scores_full[scores_ring.stage()].arrive();
    };
    if (chain == 0) {
      start_queries();
      wgmma_wait<0>(Q_K);
      put_scores();
    }
    bool has_scores = chain == 1;  // this chain computes P of the next chunk
    for (int t = 0; t < a.L; t += kChunk) {
      pair_ring.advance();
      scores_ring.advance();
      RoundedState<Shape::kDk> s;
      WarpgroupColumns sums, v_new;  // the residual, later the outputs
      WarpgroupFragments factor;
      round_state<Shape::kDk>(s, S);
      v_ring.wait(v_full);
      load_signed_values(sums, memory.V(v_ring.stage(), chain), unit, kMinus);
      ring.wait(full);
      wgmma_fence(sums, s);
      start_residual<Shape::kDk>(sums, s, memory.K(ring.stage()));
      wgmma_commit();
      wgmma_wait<0>(sums);
      round_columns(factor, sums);
      wgmma_fence(sums, s, factor);
      start_output_from_state<Shape::kDk>(sums, s, memory.Q(ring.stage()));
      wgmma_commit();
      wgmma_wait<0>(sums);
      const ChunkFactors factors = memory.factors(factor_ring.stage());
      factor_ring.wait(inverses_full);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, factors.T);
      wgmma_commit();
      wgmma_wait<0>(v_new);
      round_columns(factor, v_new);
      factor_ring.wait(scores_full);
      wgmma_fence(S, sums, factor);
      start_state_update<Shape::kDk>(S, factor, memory.K(ring.stage()));
      start_output_from_values(sums, factor, factors.P);
      wgmma_commit();
      if (has_scores && t + kChunk < a.L) {
        start_queries();
        wgmma_wait<0>(S, sums, Q_K);
        put_scores();
      } else {
        wgmma_wait<0>(S, sums);
      }
      has_scores = !has_scores;
      if (lane_index() == 0) {
        empty[ring.stage()].arrive();
        factors_empty[factor_ring.stage()].arrive();
      }
      ring.advance();
      factor_ring.advance();
      __syncwarp();  // all lanes have read their part of V
      put_output(memory.V(v_ring.stage(), chain), sums, a.scale, unit);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) output_full[v_ring.stage()].arrive();
      v_ring.advance();
    }
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + column, S, a.final_state.stride_l, a.Dk, columns);
    }
  }
}

}  // namespace

void one_block(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    const dim3 grid((unsigned(a.Dv) - 1) / (kChains * Shape::kDv) + 1, unsigned(a.H), unsigned(a.B));
    launch(one_block_kernel<Shape>, {grid, kBlockThreads, std::size_t(BlockMemory<Shape>::kBytes)}, a, chunk_maps(a),
           output_map(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::delta_rule
