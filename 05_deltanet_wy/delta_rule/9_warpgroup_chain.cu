/// @file
/// Stage 9, `warpgroup_chain`: a warpgroup computes the three products of the chain, and outputs in their gaps.
///
/// Idea: wgmma reads a right factor from shared memory once for four warps, and its left factor may be in registers.
/// S^T stays in the accumulators of one product for the whole sequence. Each product's result is rounded in the
/// registers where it is and becomes the left factor of the next one: S for K S, the residual for v_new, and v_new for
/// the update of S (warpgroup_products.cuh). The chain waits three times in a chunk. Products that it does not wait for
/// are queued behind those that it waits for. Apart from rounding, its threads do all their own work while a product
/// runs:
///
///     tensor core | v_new | Q S ......... | S update ..... | P v_new | | K S of n + 1 |
///     threads     | -V of n + 1 | round v_new | wait       | round S   | put O of n   | round residual
///
/// No product is in flight at the end of the loop's body, after K S, because the compiler cannot carry a running
/// product from one iteration to the next. For the same reason the last chunk, which no K S follows, is written out
/// after the loop.
/// Grows out of: 02_chunkwise/linear_attention/13_balanced_roles.cu
/// Improves on: in `fused` a warp loads, multiplies and stores, one after the other, and each of the four warps reads all
/// of K twice per chunk, as fragments. Loads, barriers and roles are those of chapter 02's kernel; the products are
/// those of `fused`.
/// Unchanged: T, P, 64 columns per block, and what is rounded. Products with P no longer skip the zeros above its
/// diagonal; products with T skip a quarter of the matrix.
///
/// Equation: that of `fused`.
///
/// Shapes: those of `fused`. prepare_tiles() leaves -T and P as rows of 64, for bulk copies.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 columns of Dv. One thread of warpgroup 0
/// loads, three of its warps store outputs, and warpgroup 1 has the state.
/// Synchronization: the tiles of a chunk are free (`empty`) when the warps of the state have waited for its last
/// product. An output tile is free (`output_empty`) when the warps that store have read it.
/// Resources: at Dk = 128 three chunks of 64 KB and two tiles of outputs, 208 KB of shared memory: one block per
/// multiprocessor. Per thread 64 registers for S, 32 for its rounded copy, and 32 each for residual, v_new and O.
/// Work: that of prepare_tiles(), and 6 Dk Dv + 320 Dv operations per position on tensor cores.
/// Bytes: v and o once; q, k and 384 bytes of T and P per position once per tile of 64 columns; q and k once more in
/// prepare_tiles(), which writes those 384 bytes.
/// Bound by: with few heads the chain; with many heads prepare_tiles() and the memory's bandwidth.
/// Requires: compute capability 9.0, Dk <= 128, Dk and Dv multiples of 16, tensors that a tensor map can describe.
/// Weakness: T and P go through memory, and there is only one block per head and tile of Dv.
/// Source: the transposed chain on warpgroups: FlashInfer's delta rule for Hopper.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
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
constexpr int kBlockThreads = 2 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// A chunk in shared memory.
template <class Shape>
struct Tiles : ChunkTiles<Shape> {
  SquarePanel T_high, T_low, P;

  static constexpr int kBytes = ChunkTiles<Shape>::kBytes + 3 * int(SquarePanel::kPanelBytes);

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
    warpgroup_chain_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                           const __grid_constant__ TensorMap prepared) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return Tiles<Shape>(memory + stage * Tiles<Shape>::kBytes); };
  const auto output = [&](int number) {
    return ValuePanel{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles<Shape>::kBytes +
                                                       number * int(ValuePanel::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = 0; t < a.L; t += kChunk) {
        const Tiles<Shape> tiles = tiles_of(ring.stage());
        ring.wait(empty);
        fence_async_proxy();  // V has been read by ldmatrix
        full[ring.stage()].arrive_expect(Tiles<Shape>::kBytes);
        load_chunk(tiles, maps, full[ring.stage()], b, h, t, first_column);
        load_tile(prepared, tiles.T_high.data, full[ring.stage()],
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
  } else {
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

void warpgroup_chain(const Bf16Arguments& a) {
  const PreparedTiles x = prepare_tiles(a);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    launch(warpgroup_chain_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlockThreads, kSharedBytes<Shape>}, a,
           chunk_maps(a), map_of(x, a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  end_part("walk");
}

}  // namespace tutorial::delta_rule
