/// @file
/// Stage 11, `warpgroup_mma`: four warps compute a product together and take its factors straight from shared memory.
///
/// Idea: `wgmma` multiplies a 64 x 16 by a 16 x N matrix, N up to 256. Four warps, called a warpgroup, start it
/// together, and each has 16 of the 64 rows. The tensor core itself reads the right factor from shared memory, once for
/// all four warps. So that factor needs no ldmatrix and no registers for fragments. The left factor comes from shared
/// memory, too, or from registers. S^T comes from registers: in fp32 it is the sum of one product, and in bf16 it is
/// the left factor of another, without passing through shared memory (common/tile/wgmma_products.cuh has the four
/// products).
///
/// A product runs asynchronously until the warpgroup waits for it. The kernel uses this: it starts S^T Q^T together
/// with Q K^T, and S^T Q^T runs while the threads mask and store the scores.
///
///     tensor core | Q K^T | S^T Q^T .......| V^T P^T | V^T K |
///     threads     | wait  | mask, store P  | wait            | store O, round S |
///
/// Grows out of: 10_bulk_copies.cu
/// Improves on: `bulk_copies` reads each operand from shared memory several times, with one instruction per 16 x 16
/// elements. The two warps of each scheduler have to issue all of these instructions between their products.
/// Unchanged: equation, loads, precision, bytes. The products, however, now compute all of P, also above its diagonal.
/// Thread mapping: block (x, h, b) takes the 64 columns from 64 x on; its 128 threads are one warpgroup.
/// Resources: two sets of Q, K and V, one P and one O: 96 KB of shared memory at Dk = 128, two blocks per
/// multiprocessor. Of a thread's registers S^T takes 64, its rounded copy 32, O^T 32 and the scores 32.
/// Fences: wgmma_fence() stands before products that read registers which the threads have written. fence_async_proxy()
/// stands after the stores to P, because products read P through the async proxy.
/// Work: per position 4 Dk Dv operations for the state and 2 C (Dk ceil(Dv / 64) + Dv) for the scores, because each
/// block of 64 columns computes Q K^T.
/// Bound by: latency. In each chunk five waits follow one another: for the barrier before the loads, for the tile, for
/// Q K^T, for the barrier after P, and for the last products.
/// Requires: compute capability 9.0, Dk <= 128, Dk and Dv multiples of 16, and tensors that a tensor map can describe.
/// Weakness: those waits follow one another. `specialized` divides them among different warps.
/// Sources: PTX ISA, "wgmma".

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/grid.cuh"
#include "common/tile/store_output.cuh"
#include "common/tile/wgmma_products.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;  // chunks in shared memory

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes + 2 * PanelTile<64>::kPanelBytes;

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, 2)
    warpgroup_mma_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int t) {
    return ChunkTiles<Shape>(memory + t / kChunk % kPipelineDepth * ChunkTiles<Shape>::kBytes);
  };
  const PanelTile<64> P{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes)};
  const PanelTile<64> output{P.data + P.kPanelElements};

  const auto load = [&](int t) {
    Barrier& barrier = full[t / kChunk % kPipelineDepth];
    barrier.arrive_expect(ChunkTiles<Shape>::kBytes);
    load_chunk(tiles_of(t), maps, barrier, b, h, t, first_column);
  };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    fence_barrier_init();
    load(0);
  }

  WarpgroupState<Shape::kDk> S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);

  auto ring = Ring<kPipelineDepth>::consumer();
  for (int t = 0; t < a.L; t += kChunk) {
    __syncthreads();
    if (threadIdx.x == 0 && t + kChunk < a.L) load(t + kChunk);
    ring.wait(full);
    ring.advance();
    const ChunkTiles<Shape> tiles = tiles_of(t);
    WarpgroupScores scores;
    WarpgroupOutput O;
    RoundedState<Shape::kDk> s;
    round_state<Shape::kDk>(s, S);
    wgmma_fence(scores, O, s, S);
    start_scores(scores, tiles.Q, tiles.K);
    wgmma_commit();
    start_output_from_state<Shape::kDk>(O, s, tiles.Q);
    wgmma_commit();
    wgmma_wait<1>(scores);
    store_masked_scores(P, scores);
    fence_async_proxy();
    __syncthreads();
    start_output_from_scores(O, tiles.V, P);
    start_state_update<Shape::kDk>(S, tiles.V, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(O, s, S);
    put_output(output, O, a.scale);
    store_warp_columns<Shape>(a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns, output);
  }
  if (a.final_state.data) {
    store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void warpgroup_mma(const Bf16Arguments& a) {
  const auto start = [&]<class Shape>(Shape) {
    launch(warpgroup_mma_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kThreads, kSharedBytes<Shape>}, a,
           chunk_maps(a));
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

}  // namespace tutorial::linear_attention
