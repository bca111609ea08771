/// @file
/// Stage 10, `bulk_copies`: one thread requests a whole tile, and a barrier in shared memory says when the tile is
/// there.
///
/// Idea: with `cp.async` 128 threads compute 3072 addresses for each chunk with 128 columns of Dv, one for every 16
/// bytes (2560 with 64 columns). Each multiprocessor of Hopper has a copy engine that copies tiles by itself. The host
/// describes the tensor to this engine once (common/device/tensor_map.hpp). In the kernel thread 0 names a tile by its
/// coordinates. The engine computes addresses, fills in zeros beyond the end of the tensor, and swizzles the 16-byte
/// units of each row. When all bytes of a chunk have arrived, a phase of the barrier `full` ends. All threads wait for
/// this end (common/device/mbarrier.cuh).
///
///     thread 0    | expect the bytes of Q, K, V of n + 1, ask  |
///     copies      |  chunk n + 1 ............................... |-> full[(n + 1) % 2]
///     products    |  chunk n                   | wait for `full` | chunk n + 1
///
/// Grows out of: 8_pipelined.cu
/// Improves on: `pipelined` spends some seven instructions on each 16 bytes, and registers on their addresses.
/// Unchanged: the products, their order, and the columns of each block; equation, precision, operations and bytes.
/// Shapes: tiles lie in shared memory as panels of 64 columns (common/tile/panel_tile.cuh), because a row of a swizzled
/// bulk copy has at most 128 bytes.
/// Resources: those of `pipelined`, and 16 bytes for the barriers.
/// Fence: the bulk copy that fills a set of tiles again belongs to the async proxy, which does not wait by itself for
/// what threads do there. They have read Q, K and V by ldmatrix, and O has passed through the shared memory of V
/// (common/tile/store_tile.cuh), by ordinary stores. So each thread fences its reads and stores before the block's
/// barrier, and the copy is issued after that barrier (common/device/proxy_fence.cuh).
/// Bound by: as `pipelined`.
/// Requires: compute capability 9.0, what `tensor_core` requires, and tensors that a tensor map can describe: their
/// strides are positive.
/// Weakness: the products still fetch each operand several times by ldmatrix. `warpgroup_mma` does not.
/// Sources: PTX ISA, "cp.async.bulk.tensor" and "mbarrier".

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/block_columns.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/column_products.cuh"
#include "common/tile/grid.cuh"
#include "common/tile/load_state.cuh"
#include "common/tile/masked_scores.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/store_output.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;  // chunks in shared memory

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes + kChunk* kChunk * sizeof(__nv_bfloat16);

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    bulk_copies_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int t) {
    return ChunkTiles<Shape>(memory + t / kChunk % kPipelineDepth * ChunkTiles<Shape>::kBytes);
  };
  const typename Shape::ScoreTile P{
      reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes)};

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

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);

  auto ring = Ring<kPipelineDepth>::consumer();
  for (int t = 0; t < a.L; t += kChunk) {
    __syncthreads();
    if (threadIdx.x == 0 && t + kChunk < a.L) load(t + kChunk);
    ring.wait(full);
    ring.advance();
    const ChunkTiles<Shape> tiles = tiles_of(t);
    typename Shape::Output O = {};
    masked_scores<Shape>(P, tiles.Q, tiles.K);
    add_from_state<Shape>(O, tiles.Q, S);
    __syncthreads();
    add_from_scores<Shape>(O, P, tiles.V);
    update_state<Shape>(S, tiles.K, tiles.V);
    store_output<Shape>(a.o.row(hide_from_compiler(b), h, t) + first_column, a.o.stride_l, a.L - t, columns, O, tiles.V,
                        a.scale);
    fence_async_proxy();
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void bulk_copies(const Bf16Arguments& a) {
  select_shape<PanelShape>(a.Dk, block_columns(extents_of(a)), [&]<class Shape>(Shape) {
    launch(bulk_copies_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kThreads, kSharedBytes<Shape>}, a,
           chunk_maps(a));
  });
}

}  // namespace tutorial::linear_attention
