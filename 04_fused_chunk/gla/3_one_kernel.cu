/// @file
/// `one_kernel`: warps that prepare beside warps that walk.
///
/// Idea: in chapter 03, a kernel before the walk computes everything that depends on one sub-chunk alone. It writes q
/// and k with their decays to memory, as many bytes as q and k themselves, and the walk reads them again. Here the same
/// block does both, one chunk apart: while its walking warps are at chunk n, its preparing warps read q, k and g of
/// chunk n + 1. They leave in shared memory what chapter 03 leaves in device memory. One barrier per chunk swaps two
/// sets of tiles.
///
///     preparing warps   chunk 0 | chunk 1 | chunk 2 | ...        q, k, g from memory, through registers, into tiles
///     walking warps             | chunk 0 | chunk 1 | ...        tiles and V to tensor cores, O to memory
///                               ^ a barrier; the two kinds of warps wait for it at different lines
///
/// Grows out of: 03_gla/gla/7_subchunk_walk.cu
/// Improves on: `intra_fused` reads what another kernel has written, loads its sub-chunks one by one, and has few warps
/// per multiprocessor. `subchunk_walk` loads ahead, but writes q and k with their decays to memory.
/// Unchanged: the arithmetic of `subchunk_walk`. If two warps prepare a sub-chunk, P is the sum of two parts, each
/// rounded to bf16, and the walk multiplies both with V.
/// Equation: for each sub-chunk r, its positions counted from 1:
///
///   q~_t = q_t exp(g_1 + ... + g_t)     k~_i = k_i exp(g_(i+1) + ... + g_16)     D = exp(g_1 + ... + g_16)
///   P_ti = sum_d q_td k_id exp(g_(i+1)d + ... + g_td), i <= t
///   O_r  = scale (q~_r S + P_r V_r)        S = diag(D) S + k~_r^T V_r
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L, Dk], states fp32.
/// Thread mapping: block (tile, h, b) has 128 or 64 columns of Dv. Each of its 8 or 4 walking warps has 16 of them,
/// with their part of the state in registers. Each preparing warp has one sub-chunk of every chunk. If Dk > 64, two
/// warps share a sub-chunk, and each has one half of Dk. A preparing warp loads 8 rows ahead.
/// Resources at Dk = Dv = 128: 512 threads of 128 registers, 108 KB of shared memory: one block per multiprocessor.
/// Work: as `subchunk_walk` and its prepare().
/// Bytes: q, k and g once per tile of Dv, v and o once. No workspace.
/// Bound by: instructions. A preparing warp executes about 2500 for a sub-chunk and half of Dk. Each scheduler has two
/// preparing and two walking warps.
/// Requires: as `subchunk_walk`.
/// Weakness: the number of instructions. In chapter 03 the same instructions run while memory moves the data, on 12
/// warps per multiprocessor that do nothing else. And there is only one block per head and tile of Dv.
/// Sources: FlashAttention-3 (arXiv 2407.08608) for warps with different tasks in one block.

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/launch_plan.hpp"
#include "04_fused_chunk/gla/rows_to_tiles.cuh"
#include "common/device/block_barrier.cuh"
#include "common/device/launch.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/walk_sub_chunk.cuh"

namespace tutorial::fused_gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;  // chunks in shared memory

/// How a block holds its part of a head: all of Dk <= kDk and kDv columns of Dv, of which each walking warp has 16.
template <int kDk_, int kDv_>
struct WalkShape {
  static constexpr int kDk = kDk_;
  static constexpr int kDv = kDv_;
  static constexpr int kWarpColumns = 16;
  static constexpr int kWalkers = 32 * kDv / kWarpColumns;          // threads
  static constexpr int kParts = kDk <= 64 ? 1 : 2;                  // warps that share the columns of a sub-chunk
  static constexpr int kElements = kDk / (32 * kParts);             // of a row, in a lane of a preparing warp
  static constexpr int kAll = kWalkers + 32 * kSubChunks * kParts;  // threads

  using KeyTile = SwizzledTile<kDk>;
  using ValueTile = SwizzledTile<kDv>;
  using State = float[1][kDk / 8][4];
};

template <class Shape>
constexpr int kTileBytes = DecayedTiles<Shape>::kBytes + (Shape::kParts - 1) * 2 * kChunk* kSubChunk;

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* kTileBytes<Shape>;

/// The preparing warps: each has a sub-chunk of every chunk, one chunk ahead of the walk. The rows of all its chunks
/// form one stream, so loads are always in flight.
template <class Shape, class TilesOf>
__device__ __forceinline__ void prepare_chunks(const Bf16Arguments& a, int b, int h, const TilesOf& tiles_of) {
  constexpr int kElements = Shape::kElements;
  const int warp = (int(threadIdx.x) - Shape::kWalkers) / 32, sub_chunk = warp % kSubChunks;
  const int d = (warp / kSubChunks * 32 + int(lane_index())) * kElements, first = sub_chunk * kSubChunk;
  const auto load = [&](int t, int row) {
    const int position = t + first + (row < kSubChunk ? row : row - kSubChunk + kChunk);
    return load_row<kElements>(a, b, h, position, d);
  };
  Row<kElements> ahead[kAhead];
#pragma unroll
  for (int row = 0; row < kAhead; ++row) ahead[row] = load(0, row);
  for (int t = 0; t < a.L; t += kChunk) {
    const DecayedTiles<Shape> tiles = tiles_of(t);
    const RowsToTiles<Shape> rows{tiles, sub_chunk, d};
    float scores[8] = {};
    decay_sub_chunk<kElements>(
        ahead, a.L - first - t, d < a.Dk, [&](int row) { return load(t, row); }, rows, scores);
    reinterpret_cast<uint4*>(tiles.scores)[warp * 2 * kSubChunk + int(lane_index())] = packed_scores(scores);
    block_barrier();
  }
}

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(Shape::kAll, 1) fused_kernel(Bf16Arguments a) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) {
    return DecayedTiles<Shape>(memory + t / kChunk % kPipelineDepth * kTileBytes<Shape>);
  };
  if (int(threadIdx.x) >= Shape::kWalkers) return prepare_chunks<Shape>(a, b, h, tiles_of);

  const auto load = [&](int t) {
    if (threadIdx.x >= kThreads) return;
    load_tile_async(tiles_of(t).V, a.v.row(hide_from_compiler(b), h, t) + first_column, a.v.stride_l, a.L - t, columns);
    cp_async_commit();
  };
  load(0);

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);

  for (int t = 0; t < a.L; t += kChunk) {
    cp_async_wait<0>();
    block_barrier();
    if (t + kChunk < a.L) load(t + kChunk);
    const DecayedTiles<Shape> tiles = tiles_of(t);
#pragma unroll 1
    for (int row = 0; row < kChunk; row += kSubChunk) {
      float O[Shape::kWarpColumns / 8][4] = {};
      walk_sub_chunk<Shape, true, Shape::kParts>(S, O, tiles, row);
      put_output<Shape>(tiles.V, O, row, a.scale);
    }
    store_warp_columns<Shape>(a.o.row(hide_from_compiler(b), h, t) + first_column, a.o.stride_l, a.L - t, columns,
                              tiles.V);
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void one_kernel(const Bf16Arguments& a) {
  select_shape<WalkShape>(a.Dk, one_kernel_columns(a), [&]<class Shape>(Shape) {
    launch(fused_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), Shape::kAll, kSharedBytes<Shape>}, a);
  });
}

}  // namespace tutorial::fused_gla
