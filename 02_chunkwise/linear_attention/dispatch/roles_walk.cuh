#pragma once
/// @file
/// One of the two walks of dispatch on cards without products of warpgroups; dispatch takes the one that it expects to be
/// faster. In this one some warps load, and four multiply.
///
/// Idea: in walk.cuh all warps load, wait and multiply in turn. Its two sets of tiles and P take 104 KB with 128
/// columns per block, 5 KB more than a block of an RTX card has. Here P overwrites Q of its own chunk, so two sets are
/// 96 KB. Warps of their own load the tiles, and the four warps that multiply compute no addresses of loads. Each tile
/// returns to the loads as soon as it has been read, not only when its chunk is done:
///
///     products    | Q S of n | Q K^T | P over Q | P V ...... | K^T V .... | O over V | Q S of n + 1 ...
///     loads                                           Q free |     K free |   V free |
///                                                            | Q of n + 2 | K of n + 2 | V of n + 2 ...
///
/// Who waits for whom: the loads wait until a slot is free, and the products wait for each tile when they first read
/// it. The warps that multiply share the columns of Dv (common/tile/chunk_products.cuh). They wait for each other twice
/// per chunk: until all have read Q, before P overwrites it, and until all parts of P are there. (With cp.async, each wait
/// for a tile is a barrier of all of them, too.) The loads, by bulk
/// copies or by cp.async, are those of common/tile/loading_warps.cuh.
///
/// Unchanged: the products, their precision, and the segments (../9_segments.cu explains them). The states of
/// the segments come from the first kernel of walk.cuh.
/// Resources: four warps that multiply, and one (BulkCopies) or two (CpAsync) that load. At Dk = Dv = 128 each thread
/// has 255 registers, so a multiprocessor has one block. Shared memory in KB, for 64 and for 128 columns per block: 48
/// and 64 up to Dk = 64, 80 and 96 up to Dk = 128. Barriers and alignment add 1 KB with bulk copies.
/// Bound by: the products, where tensor cores are slow. Where they are fast, by what a warp does between its products,
/// because no other warp of its scheduler multiplies meanwhile. With all multiprocessors busy, the memory's bandwidth.
/// Requires: Dk <= 128 and what `tensor_core` requires; with BulkCopies also what `bulk_copies` requires.
/// Weakness: the four warps store P and O at about the same time, and no other warp multiplies meanwhile. walk.cuh also supports the normaliser, the other direction
/// and Dk = 256.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/named_barrier.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/loading_warps.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

/// Computes the outputs of the block's part, and the final state after the last segment. Called by the warps that
/// multiply.
template <class Loader, class Shape = typename Loader::Shape>
__device__ __forceinline__ void multiply(const Bf16Arguments& a, const LaunchPlan& plan, const BlockPart<Shape>& part,
                                         const Loader& loader) {
  typename Shape::State S;
  part.load_start(S, a.initial_state, plan, extents_of(a));
  int n = 0;
  for (int t = part.begin; t < part.end; t += kChunk, ++n) {
    const ChunkTiles<Shape> tiles = tiles_of<Shape>(n);
    const typename Shape::ScoreTile P{tiles.Q.data};
    const bool has_successor = t + kSlots * kChunk < part.end;  // in the same slots
    typename Shape::Output O = {};
    loader.wait(kQ, n);
    add_from_state<Shape>(O, tiles.Q, S);
    loader.wait(kK, n);
    masked_scores<Shape>(P, tiles.Q, tiles.K, PutOverQ<Shape>());
    if constexpr (!Loader::kWaitsTogether) wait_at_named_barrier(kProductsBarrier, kProductsThreads);
    loader.wait(kV, n);
    add_from_scores<Shape>(O, P, tiles.V);
    if (has_successor) loader.arrive(kQ, n);
    update_state<Shape>(S, tiles.K, tiles.V);
    if (has_successor) loader.arrive(kK, n);
    store_output<Shape>(a.o.row(hide_from_compiler(part.b), part.h, t) + part.first_column, a.o.stride_l, part.end - t,
                        part.columns, O, tiles.V, a.scale);
    if (has_successor) loader.arrive(kV, n);
  }
  if (part.end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                       part.columns);
  }
}

}  // namespace
}  // namespace tutorial::linear_attention
