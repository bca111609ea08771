/// @file
/// `two_products`: delta_rule's chain on warpgroups, with T multiplied into K- and P before the walk, so that a chunk has
/// two dependent products, not three.
///
/// Idea: K+, Q+ and K- contain their decays, so the products of a chunk are delta_rule's. The only thing left for the
/// walk is the state's own decay: a row of S is a column of S^T, so each thread multiplies its accumulators by the
/// decays of their columns, while a product runs. But a chunk has three tiles of Dk columns where delta_rule has two,
/// and three chunks of them with T and P do not fit into shared memory. Now v_new = T Res is needed for two products,
/// and both have a factor that is known before the walk. So T goes into that factor, once for all columns of Dv, and
/// v_new is never computed.
///
///     Res = V - K+ S,  S = diag(exp(b_end)) S + J^T Res,  O = scale (Q+ S + R Res);  J = T^T K-,  R = P T
///
/// (J and R are called K^u and P^u in the README.)
///
///     tensor core | S update ..... | R Res | K+ S of n + 1 ....... | Q+ S of n + 1 | S update
///     threads     | -V of n + 1    | round S  | exp(b_end) S, put O of n | round Res
///
/// Two tiles take the place of T, P and K-, so three whole chunks fit into shared memory. The state decays while K+ S of
/// the next chunk is computed.
///
/// Grows out of: 05_deltanet_wy/delta_rule/9_warpgroup_chain.cu; large step: in between would stand the walk with T, P and
/// K- in shared memory, two chunks of them. It takes 0.102 ms for 4 x 8 x 2048 on an H200, this stage 0.095, and its
/// preparation is not needed any more.
/// Improves on: in `tensor_core` a warp loads, multiplies and stores, one after the other, and the state waits for three
/// products per chunk. T in two bf16, P and K- go through memory.
/// Unchanged: the roles of warps, 64 columns per block, and what rows and scores are.
///
/// Equation: that of `tensor_core`, with the products above. What is rounded: J and R instead of K-, T, P and v_new, and
/// Res as before.
///
/// Shapes: those of `tensor_core`. prepare_updates() leaves -J and -R: Res has the opposite sign in all products.
/// Thread mapping: that of `warpgroup_chain`. All lanes of the loading warp fetch decays, one chunk ahead of the bulk
/// copies.
/// Synchronization: a chunk's tiles are free (`empty`) when the warps of the state have waited for their last product
/// with it. The output tile is free (`output_empty`) when the warps that store have read it.
/// Resources: at Dk = 128 three times 65 KB of a chunk and a tile of outputs: 202 KB of shared memory, one block per
/// multiprocessor. Per thread 64 registers for S, 32 for its rounded copy, 32 each for Res and O, and 16 for Res,
/// rounded.
/// Work: that of prepare_updates(), 6 Dk Dv + 128 Dv operations per position on tensor cores; Dk Dv / 64 multiplications.
/// Bytes: v and o once; 904 bytes of Q+, K+, J, R and decays per position (at Dk = 128) once per tile of Dv; those of
/// prepare_updates().
/// Bound by: with few heads the chain; with many heads the memory's bandwidth, in both kernels.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: Q+, K+, J and R go through memory, and there is only one block per head and tile of Dv.
/// Sources: those of `tensor_core` and of delta_rule's `warpgroup_chain`; J: FlashInfer's delta rule for Hopper, since version 0.7.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/decay_columns.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/kda/chunk_decays.cuh"
#include "05_deltanet_wy/kda/update_tiles.cuh"
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

constexpr int kPipelineDepth = 3;               // chunks in shared memory
constexpr int kBlockThreads = 2 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

template <class Shape>
constexpr std::size_t kSharedBytes =
    kPipelineDepth*(UpdateTiles<Shape>::kBytes + Shape::kDk * sizeof(float)) + ValuePanel::kPanelBytes;

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    two_products_kernel(Bf16Arguments a, const __grid_constant__ UpdateTileMaps maps, const float* all_decays) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full, output_empty;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return UpdateTiles<Shape>(memory + stage * UpdateTiles<Shape>::kBytes); };
  const ValuePanel output{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * UpdateTiles<Shape>::kBytes)};
  const auto decays_of = [&](int stage) {
    return reinterpret_cast<float*>(output.data + ValuePanel::kPanelElements) + stage * Shape::kDk;
  };

  if (threadIdx.x == 0) {
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
      auto ring = Ring<kPipelineDepth>::producer();
      const int N = (a.L - 1) / kChunk + 1;
      ChunkDecays<Shape::kDk> decays(all_decays + (std::int64_t(b) * a.H + h) * N * a.Dk, N, a.Dk);
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(empty);
        if (thread == 0) {
          fence_async_proxy();  // V has been read by ldmatrix
          tiles_of(ring.stage()).load(maps, full[ring.stage()], b, h, t, first_column);
        }
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
    auto ring = Ring<kPipelineDepth>::consumer();
    auto next_ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `ring`
    auto output_ring = Ring<1>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_columns();
    // residual = -V of the next chunk.
    const auto load_values = [&] {
      next_ring.wait(full);
      load_signed_values(residual, tiles_of(next_ring.stage()).V, unit, kMinus);
    };
    // residual += K+ S of that chunk, and S decays as that chunk says.
    const auto add_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, tiles_of(next_ring.stage()).K);
      wgmma_commit();
      decay_columns(S, decays_of(next_ring.stage()));
    };
    // O = Q+ S of that chunk.
    const auto start_output = [&] {
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles_of(next_ring.stage()).Q);
      wgmma_commit();
      wgmma_wait<1>(residual);
      next_ring.advance();
    };
    // Starts from the residual of a chunk: updates S, computes its outputs and the residual of the next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const auto tiles = tiles_of(ring.stage());
      round_columns(factor, residual);
      wgmma_fence(S, factor);
      start_state_update<Shape::kDk>(S, factor, tiles.J);
      wgmma_commit();
      start_output_from_values(O, factor, tiles.R);
      wgmma_commit();
      if constexpr (HasNext::value) {
        load_values();
        wgmma_wait<1>(S);
        add_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      __syncwarp();  // all lanes have read V and the decays
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      output_ring.wait(&output_empty);
      put_output(output, O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full.arrive();
      output_ring.advance();
      if constexpr (HasNext::value) start_output();
    };

    load_values();
    add_state_product();
    start_output();
    for (int t = 0; t + kChunk < a.L; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void walk_with_updates(const Bf16Arguments& a, const PreparedUpdates& x) {
  const auto start = [&]<class Shape>(Shape) {
    launch(two_products_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlockThreads, kSharedBytes<Shape>}, a,
           update_maps(x, a), x.decays);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

void two_products(const Bf16Arguments& a) {
  const PreparedUpdates updates = prepare_updates(a);
  end_part("prepare");
  walk_with_updates(a, updates);
  end_part("walk");
}

}  // namespace tutorial::kda
