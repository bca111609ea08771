/// @file
/// `two_warpgroups`: blocks of 128 columns, where blocks of 64 do not fit onto the GPU at once.
///
/// Idea: with more blocks than multiprocessors, each multiprocessor walks one head's columns after the other's. A block
/// of 128 columns walks both halves of a head at once: each half has a warpgroup, which computes while the other one
/// waits. All tiles but V serve both of them, so a chunk takes less shared memory than in two blocks, and less bandwidth
/// of the second-level cache.
///
///     tensor core   | a: v_new | b: K+ S | a: Q+ S, S update | b: v_new | a: P v_new | b: Q+ S, S update | ...
///
/// Three warpgroups share the registers of a multiprocessor. Those that load and store give some of theirs to the
/// others.
/// Grows out of: 6_warpgroup_chain.cu
/// Improves on: in `warpgroup_chain` 128 heads take two rounds of blocks, in which the tensor cores wait for one chain.
/// Unchanged: the chain, the rings and their barriers. Where all blocks of 64 columns have a multiprocessor of their
/// own, it is `warpgroup_chain`.
///
/// Equation, shapes: those of `warpgroup_chain`.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 or 128 columns of Dv. One warp of
/// warpgroup 0 loads, three of its warps store outputs, and one warpgroup has the state for each 64 columns.
/// Synchronization: that of `warpgroup_chain`; there is one tile of outputs for each warpgroup of the state.
/// Resources: at Dk = 128 and 128 columns, two times 32 KB of K+ and V, two times 57 KB of the rest, and two tiles of
/// outputs: 194 KB of shared memory. 216 registers per thread of the state, and 72 of the others.
/// Work: that of `warpgroup_chain`.
/// Bytes: those of `warpgroup_chain`, with tiles of 128 columns where it takes these.
/// Bound by: the memory's bandwidth, in both kernels.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: Q+, K+, K-, T and P go through memory.
/// Sources: those of `warpgroup_chain`; FlashInfer's delta rule for Hopper has two such warpgroups.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "05_deltanet_wy/kda/chain_tiles.cuh"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/registers.cuh"
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
constexpr int kStoreThreads = kWarpgroup - 32;  // of a block

template <class Shape>
constexpr int kWalkers = Shape::kDv / kWarpgroupColumns;  // warpgroups that have a part of the state
template <class Shape>
constexpr int kBlockThreads = (1 + kWalkers<Shape>)*kWarpgroup;
template <class Shape>
constexpr int kPipelineDepth = kWalkers<Shape> == 1 ? 3 : 2;  // of the other tiles

template <class Shape>
constexpr std::size_t kSharedBytes = kAheadDepth* AheadTiles<Shape>::kBytes +
                                     kPipelineDepth<Shape>*(ChainTiles<Shape>::kBytes + Shape::kDk * sizeof(float)) +
                                     kWalkers<Shape>* ValuePanel::kPanelBytes;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads<Shape>, 1)
    two_warpgroups_kernel(Bf16Arguments a, const __grid_constant__ ChainMaps maps, const float* all_decays) {
  constexpr int kWalkers = kda::kWalkers<Shape>, kDepth = kPipelineDepth<Shape>;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  __shared__ Barrier ahead_full[kAheadDepth], ahead_empty[kAheadDepth], full[kDepth], empty[kDepth];
  __shared__ Barrier output_full[kWalkers], output_empty[kWalkers];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto ahead_of = [&](int stage) { return AheadTiles<Shape>(memory + stage * AheadTiles<Shape>::kBytes); };
  auto* behind = memory + kAheadDepth * AheadTiles<Shape>::kBytes;
  const auto tiles_of = [&](int stage) { return ChainTiles<Shape>(behind + stage * ChainTiles<Shape>::kBytes); };
  const auto output = [&](int walker) {
    return ValuePanel{reinterpret_cast<__nv_bfloat16*>(behind + kDepth * ChainTiles<Shape>::kBytes) +
                      walker * ValuePanel::kPanelElements};
  };
  const auto decays_of = [&](int stage) {
    return reinterpret_cast<float*>(output(kWalkers).data) + stage * Shape::kDk;
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : ahead_full) barrier.init(1);
    for (Barrier& barrier : ahead_empty) barrier.init(4 * kWalkers);
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4 * kWalkers);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    if (kWalkers == 2) decrease_registers<72>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      auto ahead_ring = Ring<kAheadDepth>::producer();
      auto ring = Ring<kDepth>::producer();
      const int N = (a.L - 1) / kChunk + 1;
      ChainDecays<Shape::kDk> decays(all_decays + (std::int64_t(b) * a.H + h) * N * a.Dk, N, a.Dk);
      for (int t = 0; t < a.L; t += kChunk) {
        ahead_ring.wait(ahead_empty);
        if (thread == 0) ahead_of(ahead_ring.stage()).load(maps, ahead_full[ahead_ring.stage()], b, h, t, first_column);
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
#pragma unroll 1
        for (int walker = 0; walker < kWalkers; ++walker) {
          const int column = first_column + walker * kWarpgroupColumns;
          ring.wait(output_full + walker);
          store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + column, a.o.stride_l, a.L - t, a.Dv - column,
                                       output(walker), [&] {
                                         __syncwarp();
                                         if (lane_index() == 0) output_empty[walker].arrive();
                                       });
        }
        ring.advance();
      }
    }
  } else {
    if (kWalkers == 2) increase_registers<216>();
    const int walker = group - 1, column = first_column + walker * kWarpgroupColumns, columns = a.Dv - column;
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ahead_ring = Ring<kAheadDepth>::consumer();  // one chunk ahead of `ring`
    auto ring = Ring<kDepth>::consumer();
    auto output_ring = Ring<1>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, v_new, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_values();
    // residual = -V of the next chunk. K+ of that chunk has arrived with it.
    const auto load_values = [&] {
      ahead_ring.wait(ahead_full);
      const auto V = ahead_of(ahead_ring.stage()).V;
      load_signed_values(residual, ValuePanel{V.data + walker * ValuePanel::kPanelElements}, unit, kMinus);
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
      output_ring.wait(output_empty + walker);
      put_output(output(walker), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[walker].arrive();
      output_ring.advance();
      if constexpr (HasNext::value) finish_residual();
    };

    load_values();
    add_state_product();
    finish_residual();
    for (int t = 0; t + kChunk < a.L; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + column, S, a.final_state.stride_l, a.Dk, columns);
    }
  }
}

}  // namespace

void two_warpgroups(const Bf16Arguments& a) {
  const PreparedTiles x = prepare_tiles(a);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    launch(two_warpgroups_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlockThreads<Shape>, kSharedBytes<Shape>},
           a, chain_maps(x, a), x.decays);
  };
  if (chain_columns(a) == 64) {
    a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  } else {
    a.Dk <= 64 ? start(PanelShape<64, 128>()) : start(PanelShape<128, 128>());
  }
  end_part("walk");
}

int chain_columns(const Bf16Arguments& a) {
  const bool each_has_a_multiprocessor = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 64) <= multiprocessor_count();
  return a.Dv <= 64 || each_has_a_multiprocessor ? 64 : 128;
}

}  // namespace tutorial::kda
