/// @file
/// Stage 10, `scores_in_walk`: P in a warpgroup of its own, beside the chain.
///
/// Idea: T takes thousands of clocks per chunk, but P is a single product of tiles that the walk has loaded anyway. So
/// one more warpgroup of the walk computes P, while the chain is still busy with the chunk before. Then no other kernel
/// needs q, and P is neither written to memory nor read.
///
///     loads        | Q, K, V, T of n + 2 |
///     warpgroup 1          | P of n + 1 |
///     warpgroup 2  | chain of n .............. | chain of n + 1 ...
///
/// Grows out of: 9_warpgroup_chain.cu
/// Improves on: of the bytes that `warpgroup_chain` reads and writes in prepare_tiles() and the walk, a quarter is P, and
/// q for P.
/// Unchanged: the products of the chain, T, and what is rounded.
///
/// Equation, shapes: those of `warpgroup_chain`, with T alone in memory. (prepare_tiles_of_T() leaves the place of P.)
/// Thread mapping: warpgroup 0 loads and stores, warpgroup 1 computes P, and warpgroup 2 has the state.
/// Synchronization: `scores_full` says that P of a chunk is there. The tiles of a chunk are free when the chain is done
/// with them, since the chain has waited for P.
/// Resources: those of `warpgroup_chain`; the chain has 240 registers per thread, the other warpgroups 64 and 96.
/// Work: that of `warpgroup_chain`, but 128 Dk operations per position for Q K^T once for each tile of 64 columns.
/// Bytes: v and o once; q, k and 256 bytes of T per position once per tile of 64 columns; k once more for T, of which
/// those 256 bytes are written.
/// Bound by: with few heads the chain; with many heads the memory's bandwidth.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: each tile of 64 columns computes P again, and T still goes through memory. There is only one block per head
/// and tile of Dv.
/// Sources: those of `warpgroup_chain`; chapter 02's `balanced_roles`, which has scores in a warpgroup of their own.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/parts.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 3;               // chunks in shared memory
constexpr int kDepth = 2;                       // O in shared memory
constexpr int kBlockThreads = 3 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// A chunk in shared memory. All but P is loaded.
template <class Shape>
struct Tiles : ChunkTiles<Shape> {
  SquarePanel T_high, T_low, P;

  static constexpr int kLoadedBytes = ChunkTiles<Shape>::kBytes + 2 * int(SquarePanel::kPanelBytes);
  static constexpr int kBytes = kLoadedBytes + int(SquarePanel::kPanelBytes);

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : ChunkTiles<Shape>(memory),
        T_high{reinterpret_cast<__nv_bfloat16*>(memory + ChunkTiles<Shape>::kBytes)},
        T_low{T_high.data + SquarePanel::kPanelElements},
        P{T_low.data + SquarePanel::kPanelElements} {}
};

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* Tiles<Shape>::kBytes + kDepth* ValuePanel::kPanelBytes;

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    scores_in_walk_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                          const __grid_constant__ TensorMap inverses) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], scores_full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return Tiles<Shape>(memory + stage * Tiles<Shape>::kBytes); };
  const auto output = [&](int number) {
    return ValuePanel{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles<Shape>::kBytes +
                                                       number * int(ValuePanel::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : scores_full) barrier.init(4);
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
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
        const Tiles<Shape> tiles = tiles_of(ring.stage());
        ring.wait(empty);
        fence_async_proxy();  // V has been read by ldmatrix
        full[ring.stage()].arrive_expect(Tiles<Shape>::kLoadedBytes);
        load_chunk(tiles, maps, full[ring.stage()], b, h, t, first_column);
        load_tile(inverses, tiles.T_high.data, full[ring.stage()],
                  {.position = t / kChunk * kPreparedRows, .head = h, .batch = b});
        ring.advance();
      }
    } else if (thread >= 32) {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                     output(output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else if (group == 1) {
    decrease_registers<96>();
    auto ring = Ring<kPipelineDepth>::consumer();
    for (int t = 0; t < a.L; t += kChunk) {
      const Tiles<Shape> tiles = tiles_of(ring.stage());
      WarpgroupScores P;
      ring.wait(full);
      wgmma_fence(P);
      start_scores(P, tiles.Q, tiles.K);
      wgmma_commit();
      wgmma_wait<0>(P);
      store_masked_scores(tiles.P, P);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) scores_full[ring.stage()].arrive();
      ring.advance();
    }
  } else {
    increase_registers<240>();
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto output_ring = Ring<kDepth>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, v_new, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_columns();
    // residual = -V of the next chunk. K of that chunk has arrived with it.
    const auto load_values = [&] {
      const ValuePanel V = tiles_of(ring.stage()).V;
      ring.wait(full);
      ring.advance();
      load_signed_values(residual, V, unit, kMinus);
    };
    // residual += K S of the chunk `read`.
    const auto start_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, tiles_of(read.stage()).K);
      wgmma_commit();
    };
    // Starts from the residual of a chunk: computes its v_new, updates S, computes its outputs and the residual of the
    // next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const Tiles<Shape> tiles = tiles_of(read.stage());
      round_columns(factor, residual);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
      wgmma_commit();
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      wgmma_commit();
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      read.wait(scores_full);
      wgmma_fence(S, factor, residual);
      start_state_update<Shape::kDk>(S, factor, tiles.K);
      wgmma_commit();
      start_output_from_values(O, factor, tiles.P);
      wgmma_commit();
      const int chunk = read.stage();
      read.advance();
      if constexpr (HasNext::value) {
        wgmma_wait<1>(S);
        start_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      __syncwarp();  // all lanes have read their part of V
      if (lane_index() == 0) empty[chunk].arrive();
      output_ring.wait(output_empty);
      put_output(output(output_ring.stage()), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
      if constexpr (HasNext::value) wgmma_wait<0>(residual);
    };

    load_values();
    start_state_product();
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

void scores_in_walk(const Bf16Arguments& a) {
  const PreparedTiles x = prepare_tiles_of_T(a);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    launch(scores_in_walk_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlockThreads, kSharedBytes<Shape>}, a,
           chunk_maps(a), map_of(x, a, 2 * kChunk));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  end_part("walk");
}

}  // namespace tutorial::delta_rule
