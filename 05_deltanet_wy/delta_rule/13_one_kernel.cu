/// @file
/// Stage 13, `one_kernel`: two warpgroups beside the chain compute T and P. Nothing is in memory between kernels, because
/// there is one.
///
/// Idea: T and P depend on a chunk's q, k and beta alone, so warps that run ahead of the chain can compute them where K
/// and Q are anyway. A chunk's inverse takes longer than its chain. So there are two warpgroups for it: one has the even
/// chunks, one the odd ones. K K^T and Q K^T are warpgroup products; the inverse is a tree of small blocks
/// (tree_inverse.cuh).
///
///     chain    | n                 | n + 1             | n + 2             |
///     T and P  | n + 2 (even) ............................... |
///                     | n + 3 (odd) .................................. |
///     loads    | Q and K of n + 4  |  V of n + 2
///
/// Grows out of: 12_warpgroup_chain.cu
/// Improves on: `warpgroup_chain` reads q and k in two kernels, and writes and reads 384 bytes of T and P per position.
/// Unchanged: the chain, its products and their order, what is rounded.
///
/// Equation: that of `fused`.
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; beta [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 columns of Dv. Warpgroups 0 and 1 compute T
/// and P of even and of odd chunks. One thread of warpgroup 2 loads, three of its warps store outputs, and warpgroup 3
/// has the state.
/// Who waits for whom: four sets of Q and K (`full`, `empty`), released by the warps with T and P and by the chain; two
/// of V (`values_full`, `values_empty`); two of T and P, one for each of the two warpgroups (`prepared_full`,
/// `prepared_empty`); one tile of outputs. The number of sets of Q and K is even, so that each set is always read by the
/// same one of the two warpgroups: it sees every phase of the set's barrier.
/// Resources: at Dk = 128 220 KB of shared memory: one block per multiprocessor. Registers of 512 threads: 104 + 104 + 72
/// + 232 <= 4 x 128.
/// Work: 6 Dk Dv + 320 Dv operations per position on tensor cores, and for each tile of 64 columns 256 Dk and the inverse.
/// Bytes: v and o once; q, k and beta once for each tile of 64 columns, from the second-level cache after the first.
/// Bound by: with few heads the chain; with many the tensor cores and the warps with T and P.
/// Requires: as `warpgroup_chain`.
/// Weakness: each tile of 64 columns computes T and P for itself. One head is two blocks, however long it is.
/// Source: the roles of FlashInfer's delta rule for Hopper.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule/tree_inverse.cuh"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;               // Q and K in shared memory
constexpr int kDepth = 2;                       // V, and T and P, in shared memory
constexpr int kBlockThreads = 4 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// A block's shared memory. Tiles of bytes, aligned to kTileAlignment.
template <class Shape>
struct Memory {
  unsigned char keys[kPipelineDepth][2][Shape::kDk / 64 * SquarePanel::kPanelBytes];  ///< Q and K
  unsigned char values[kDepth][ValuePanel::kPanelBytes];                              ///< V
  unsigned char prepared[kDepth][3][SquarePanel::kPanelBytes];                        ///< T in two bf16, and P
  unsigned char output[ValuePanel::kPanelBytes];
  unsigned char trees[kDepth][TreeMemory::kBytes];
  float beta[kDepth][2][kChunk];  ///< of a warpgroup's chunk and of its last one
};

/// Bytes of shared memory as a tile.
template <class Tile>
__device__ __forceinline__ Tile tile_at(unsigned char* memory) {
  return Tile{reinterpret_cast<__nv_bfloat16*>(memory)};
}

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    one_kernel_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  using KeyTile = typename Shape::KeyTile;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], values_full[kDepth], values_empty[kDepth];
  __shared__ Barrier prepared_full[kDepth], prepared_empty[kDepth], output_full[1], output_empty[1];
  auto& memory = *dynamic_shared<Memory<Shape>, kTileAlignment>();
  const auto queries_of = [&](int stage) { return tile_at<KeyTile>(memory.keys[stage][0]); };
  const auto keys_of = [&](int stage) { return tile_at<KeyTile>(memory.keys[stage][1]); };
  const auto values_of = [&](int stage) { return tile_at<ValuePanel>(memory.values[stage]); };
  const auto prepared_of = [&](int stage, int i) { return tile_at<SquarePanel>(memory.prepared[stage][i]); };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps with the chunk's T, and those of the state
    for (Barrier& barrier : values_full) barrier.init(1);
    for (Barrier& barrier : values_empty) barrier.init(4);
    for (Barrier& barrier : prepared_full) barrier.init(4);
    for (Barrier& barrier : prepared_empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group < 2) {
    decrease_registers<104>();
    const int thread = int(threadIdx.x) % kWarpgroup, lane = int(lane_index());
    // The same in all lanes, and so that the compiler knows: it decides about branches around products.
    const int warp = __shfl_sync(kAllLanes, thread / 32, 0);
    const SquarePanel T_high = prepared_of(group, 0), T_low = prepared_of(group, 1), P = prepared_of(group, 2);
    const auto put_block = [&](int r, int c, const SplitFragment<4>& x) {
      const int lane = fresh_lane(), first_unit = SquarePanel::unit(lane % 16, lane / 16 * 8);
      const int unit = SquarePanel::advance(first_unit, r * kBlock, c * kBlock);
      stmatrix(T_high.data + unit, x.high);
      stmatrix(T_low.data + unit, x.low);
    };
    if (warp % 2 == 0) put_block(warp, warp + 1, {});  // what products read above the diagonal
    const auto beta_at = [&](int t) {
      return thread < kChunk && t + thread < a.L ? load_global(a.beta.row(b, h, t + thread)) : 0.0f;
    };
    float next_beta = beta_at(group * kChunk);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto prepared_ring = Ring<kDepth>::producer();
    for (int t = 0; t < a.L; t += kChunk) {
      if (t / kChunk % 2 == group) {
        float* beta = memory.beta[group][t / kChunk / 2 % 2];
        const KeyTile Q = queries_of(ring.stage()), K = keys_of(ring.stage());
        // Here, because addresses that are the same in all chunks would take too many registers.
        const TreeMemory tree{reinterpret_cast<__nv_bfloat16*>(memory.trees[group])};
        WarpgroupScores N, scores;
        ring.wait(full);
        wgmma_fence(N);
        start_scores(N, K, K);
        wgmma_commit();
        if (thread < kChunk) beta[thread] = next_beta;
        next_beta = beta_at(t + 2 * kChunk);
        wait_at_named_barrier(1 + group, kWarpgroup);  // beta is there, and no warp reads the last chunk's tree
        wgmma_wait<0>(N);
        const float row_beta[2] = {beta[wgmma_row(0)], beta[wgmma_row(2)]};
#pragma unroll
        for (int i = 0; i < kChunk / 2; ++i) {
          N[i] = wgmma_column(i) < wgmma_row(i) ? -row_beta[i / 2 % 2] * N[i] : 0.0f;
        }
        // Q K^T runs under the inverse.
        const auto start_P = [&] {
          wgmma_fence(scores);
          start_scores(scores, Q, K);
          wgmma_commit();
        };
        const auto finish_P = [&] {
          wgmma_wait<0>(scores);
          if (lane == 0) empty[ring.stage()].arrive();
          prepared_ring.wait(prepared_empty);
          store_masked_scores(P, scores);
        };
        invert(N, tree, warp, 1 + group, start_P, [&, is_first = true](int r, int c, BlockSums& X) mutable {
          if (is_first) finish_P();
          is_first = false;
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            X[i / 4][i % 4] *= -beta[c * kBlock + i / 4 * 8 + lane % 4 * 2 + i % 2];
          }
          put_block(r, c, as_fragment(X));
        });
        fence_async_proxy();
        __syncwarp();
        if (lane == 0) prepared_full[group].arrive();
      }
      ring.advance();
      prepared_ring.advance();
    }
  } else if (group == 2) {
    decrease_registers<72>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      auto value_ring = Ring<kDepth>::producer();
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(sizeof memory.keys[0]);
        load_panels(queries_of(ring.stage()), maps.q, full[ring.stage()], {.position = t, .head = h, .batch = b});
        load_panels(keys_of(ring.stage()), maps.k, full[ring.stage()], {.position = t, .head = h, .batch = b});
        ring.advance();
        value_ring.wait(values_empty);
        values_full[value_ring.stage()].arrive_expect(sizeof memory.values[0]);
        load_panels(values_of(value_ring.stage()), maps.v, values_full[value_ring.stage()],
                    {.column = first_column, .position = t, .head = h, .batch = b});
        value_ring.advance();
      }
    } else if (thread >= 32) {
      auto output_ring = Ring<1>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                     tile_at<ValuePanel>(memory.output), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[0].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else {
    increase_registers<232>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto value_ring = Ring<kDepth>::consumer(), prepared_ring = value_ring;
    auto output_ring = Ring<1>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, v_new, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_values();
    // residual = -V of the next chunk, whose K is there, too.
    const auto load_values = [&] {
      ring.wait(full);
      ring.advance();
      value_ring.wait(values_full);
      load_negated_values(residual, values_of(value_ring.stage()), unit);
      __syncwarp();
      if (lane_index() == 0) values_empty[value_ring.stage()].arrive();
      value_ring.advance();
    };
    // residual += K S of the chunk `read`.
    const auto add_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, keys_of(read.stage()));
      wgmma_commit();
    };
    // From the residual of a chunk on: its v_new, what it adds to S, its outputs, and the residual of the next one.
    const auto walk = [&]<class HasNext>(HasNext) {
      const int stage = prepared_ring.stage();
      round_columns(factor, residual);
      prepared_ring.wait(prepared_full);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, prepared_of(stage, 0), prepared_of(stage, 1));
      wgmma_commit();
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, queries_of(read.stage()));
      wgmma_commit();
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      wgmma_fence(S, factor, residual);
      start_state_update<Shape::kDk>(S, factor, keys_of(read.stage()));
      wgmma_commit();
      start_output_from_values(O, factor, prepared_of(stage, 2));
      wgmma_commit();
      const int chunk = read.stage();
      read.advance();
      if constexpr (HasNext::value) {
        wgmma_wait<1>(S);
        add_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      prepared_ring.advance();
      if (lane_index() == 0) {
        empty[chunk].arrive();
        prepared_empty[stage].arrive();
      }
      output_ring.wait(output_empty);
      put_output(tile_at<ValuePanel>(memory.output), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[0].arrive();
      output_ring.advance();
      if constexpr (HasNext::value) wgmma_wait<0>(residual);
    };

    load_values();
    add_state_product();
    wgmma_wait<0>(residual);
    for (int t = 0; t + kChunk < a.L; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void one_kernel(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(one_kernel_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlockThreads, sizeof(Memory<Shape>)}, a,
           chunk_maps(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::delta_rule
