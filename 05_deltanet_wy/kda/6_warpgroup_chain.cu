/// @file
/// `warpgroup_chain`: delta_rule's chain on warpgroups, with decayed rows in the place of q and k.
///
/// Idea: K+, Q+ and K- contain their decays, so the products of a chunk are delta_rule's. The only thing left for the
/// walk is the state's own decay: a row of S is a column of S^T, so each thread multiplies its accumulators by the
/// decays of their columns, while v_new is computed. But a chunk has three tiles of Dk columns where delta_rule has two,
/// and three chunks of them do not fit into shared memory. So loads are split by when their data is needed: K+ and V by
/// the end of the chunk before, everything else when the chunk begins.
///
///     tensor core | v_new | Q+ S ......... | S update ..... | P v_new | | K+ S of n + 1 |
///     threads     | exp(b_end) S, -V of n + 1 | round v_new | wait      | round S   | put O of n   | round residual
///
/// Grows out of: 05_deltanet_wy/delta_rule/12_warpgroup_chain.cu
/// Improves on: in `specialized_warps` each warp of the chain reads K+, K- and T from shared memory for itself, and
/// passes S and v_new to other warps through shared memory.
/// Unchanged: the products and their order, T in two bf16, and what is rounded.
///
/// Equation: that of `tensor_core`.
///
/// Shapes: those of `tensor_core`. prepare_tiles() leaves -T and P as rows of 64, for bulk copies.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 columns of Dv. One warp of warpgroup
/// 0 loads, three of its warps store outputs, and warpgroup 1 has the state. All lanes of the loading warp fetch decays,
/// one chunk ahead of the bulk copies.
/// Synchronization: two rings. K+ and V are free (`ahead_empty`) when the warps of the state have waited for the
/// residual, the other tiles (`empty`) when they have waited for their last product. The output tile is free
/// (`output_empty`) when the warps that store have read it.
/// Resources: at Dk = 128 two times 24 KB of K+ and V, three times 57 KB of the rest of a chunk, and a tile of outputs:
/// 225 KB of shared memory, one block per multiprocessor. Per thread 64 registers for S, 32 for its rounded copy, and 32
/// each for residual, v_new and O.
/// Work: that of prepare_tiles(), 6 Dk Dv + 320 Dv operations per position on tensor cores; Dk Dv / 64 multiplications.
/// Bytes: v and o once; 1160 bytes of decayed rows, T, P and decays per position (at Dk = 128) once per tile of Dv;
/// those of prepare_tiles().
/// Bound by: with few heads the chain; with many heads the memory's bandwidth, in both kernels.
/// Requires: compute capability 9.0, Dk <= 128, Dk and Dv multiples of 16, tensors that a tensor map can describe.
/// Weakness: Q+, K+, K-, T and P go through memory, and there is only one block per head and tile of Dv.
/// Sources: those of `tensor_core`; the transposed chain on warpgroups: FlashInfer's delta rule for Hopper.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "05_deltanet_wy/kda/chain_tiles.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/parts.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/requirements.hpp"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using namespace delta_rule;  // products of a chunk

constexpr int kAheadDepth = 2;                  // K+ and V in shared memory
constexpr int kPipelineDepth = 3;               // the other tiles of a chunk
constexpr int kBlockThreads = 2 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

template <class Shape>
constexpr std::size_t kSharedBytes =
    kAheadDepth* AheadTiles<Shape>::kBytes +
    kPipelineDepth*(ChainTiles<Shape>::kBytes + Shape::kDk * sizeof(float)) + ValuePanel::kPanelBytes;

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    warpgroup_chain_kernel(Bf16Arguments a, const __grid_constant__ ChainMaps maps, const float* all_decays) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier ahead_full[kAheadDepth], ahead_empty[kAheadDepth], full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier output_full, output_empty;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto ahead_of = [&](int stage) { return AheadTiles<Shape>(memory + stage * AheadTiles<Shape>::kBytes); };
  auto* behind = memory + kAheadDepth * AheadTiles<Shape>::kBytes;
  const auto tiles_of = [&](int stage) { return ChainTiles<Shape>(behind + stage * ChainTiles<Shape>::kBytes); };
  const ValuePanel output{reinterpret_cast<__nv_bfloat16*>(behind + kPipelineDepth * ChainTiles<Shape>::kBytes)};
  const auto decays_of = [&](int stage) {
    return reinterpret_cast<float*>(output.data + ValuePanel::kPanelElements) + stage * Shape::kDk;
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : ahead_full) barrier.init(1);
    for (Barrier& barrier : ahead_empty) barrier.init(4);
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4);
    output_full.init(4);
    output_empty.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      auto ahead_ring = Ring<kAheadDepth>::producer();
      auto ring = Ring<kPipelineDepth>::producer();
      const int N = (a.L - 1) / kChunk + 1;
      ChainDecays<Shape::kDk> decays(all_decays + (std::int64_t(b) * a.H + h) * N * a.Dk, N, a.Dk);
      for (int t = 0; t < a.L; t += kChunk) {
        ahead_ring.wait(ahead_empty);
        if (thread == 0) {
          fence_async_proxy();  // V has been read by ldmatrix
          ahead_of(ahead_ring.stage()).load(maps, ahead_full[ahead_ring.stage()], b, h, t, first_column);
        }
        ahead_ring.advance();
        ring.wait(empty);
        if (thread == 0) tiles_of(ring.stage()).load(maps, full[ring.stage()], b, h, t);
        decays.store(decays_of(ring.stage()));
        __syncwarp();
        if (thread == 0) full[ring.stage()].arrive();
        ring.advance();
      }
    } else {
      auto ring = Ring<1>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(&output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                     output, [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty.arrive();
                                     });
        ring.advance();
      }
    }
  } else {
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ahead_ring = Ring<kAheadDepth>::consumer();  // one chunk ahead of `ring`
    auto ring = Ring<kPipelineDepth>::consumer();
    auto output_ring = Ring<1>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, v_new, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_columns();
    // residual = -V of the next chunk. K+ of that chunk has arrived with it.
    const auto load_values = [&] {
      ahead_ring.wait(ahead_full);
      load_signed_values(residual, ahead_of(ahead_ring.stage()).V, unit, kMinus);
    };
    // residual += K+ S of that chunk.
    const auto add_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, ahead_of(ahead_ring.stage()).K);
      wgmma_commit();
    };
    const auto finish_residual = [&] {
      wgmma_wait<0>(residual);
      __syncwarp();  // all lanes have read their part of V
      if (lane_index() == 0) ahead_empty[ahead_ring.stage()].arrive();
      ahead_ring.advance();
    };
    // Starts from the residual of a chunk: computes its v_new, updates S, computes its outputs and the residual of the
    // next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const ChainTiles<Shape> tiles = tiles_of(ring.stage());
      round_columns(factor, residual);
      ring.wait(full);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
      wgmma_commit();
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      wgmma_commit();
      decay_columns(S, decays_of(ring.stage()));
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      wgmma_fence(S, factor, residual);
      start_state_update<Shape::kDk>(S, factor, tiles.K_end);
      wgmma_commit();
      start_output_from_values(O, factor, tiles.P);
      wgmma_commit();
      if constexpr (HasNext::value) {
        wgmma_wait<1>(S);
        add_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      __syncwarp();  // all lanes have read the decays
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      output_ring.wait(&output_empty);
      put_output(output, O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full.arrive();
      output_ring.advance();
      if constexpr (HasNext::value) finish_residual();
    };

    load_values();
    add_state_product();
    finish_residual();
    for (int t = 0; t + kChunk < a.L; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void warpgroup_chain(const Bf16Arguments& a) {
  const PreparedTiles x = prepare_tiles(a);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    launch(warpgroup_chain_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlockThreads, kSharedBytes<Shape>}, a,
           chain_maps(x, a), x.decays);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  end_part("walk");
}

std::string warpgroup_chain_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  if (const std::string reason = kda::tensor_core_unsupported(a); !reason.empty()) return reason;
  return bulk_copies_unsupported(a);
}

std::int64_t warpgroup_chain_memory(const Bf16Arguments& a) {
  return prepared_tiles_memory(a);
}

}  // namespace tutorial::kda
