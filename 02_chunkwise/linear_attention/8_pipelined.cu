/// @file
/// Stage 8, `pipelined`: the loads of the next chunk overlap this chunk's products.
///
/// Idea: shared memory holds two sets of tiles. `cp.async` copies from device to shared memory while the thread goes
/// on. So a block starts the copies of chunk n + 1, computes chunk n, and then finds chunk n + 1 in shared memory.
///
///     copies     | chunk 0 | chunk 1      | chunk 2      | ...
///     products             | chunk 0      | chunk 1      | ...
///                          ^ wait, barrier, start the copies of the next
///
/// Grows out of: 7_tensor_core.cu
/// Improves on: `tensor_core` waits for memory, then computes while the memory is idle. It also has one more barrier
/// per chunk. Here the barrier after the wait says two things: chunk n is there for all threads, and all threads are
/// done with chunk n - 1, whose tiles the next copies fill.
/// Unchanged: the products, their order, and the columns of each block; equation, shapes, precision, operations and
/// bytes.
/// Resources: two sets of Q, K and V, and one P: 104 KB of shared memory at Dk = Dv = 128. So two blocks still fit on a
/// multiprocessor, which has 227 KB; with three sets of tiles only one would. The two blocks help each other: one
/// computes while the other waits at a barrier. Registers: 255 per thread, all that a thread can have, and two blocks
/// of 128 threads just fit. S and O take 192 of them. The compiler would like to keep other values, too, above all
/// addresses. They would spill to local memory, and each chunk would begin by waiting for them. hide_from_compiler()
/// makes the compiler compute such values again.
/// Bound by: the bandwidths of device memory and of shared memory, where there are two blocks per multiprocessor. There
/// are too few warps to quite reach either. With fewer blocks, the time that one block needs for one chunk after the
/// other.
/// Requires: what `tensor_core` requires, and the shared memory (Dk > 128: 152 KB).
/// Weakness: there are B H ceil(Dv / 64) blocks, which is 64 for 32 heads of Dv = 128, however long the sequence is.
/// `segments` cuts the sequence.
/// Sources: PTX ISA, "cp.async"; otherwise as `tensor_core`.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/tile/block_columns.hpp"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/column_products.cuh"
#include "common/tile/grid.cuh"
#include "common/tile/load_state.cuh"
#include "common/tile/load_tile_async.cuh"
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
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) pipelined_kernel(Bf16Arguments a) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) {
    return ChunkTiles<Shape>(memory + t / kChunk % kPipelineDepth * ChunkTiles<Shape>::kBytes);
  };
  const typename Shape::ScoreTile P{
      reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes)};

  const auto load = [&](int t) {
    const ChunkTiles<Shape> tiles = tiles_of(t);
    const int rows = a.L - t, batch = hide_from_compiler(b);
    load_tile_async(tiles.Q, a.q.row(batch, h, t), a.q.stride_l, rows, a.Dk);
    load_tile_async(tiles.K, a.k.row(batch, h, t), a.k.stride_l, rows, a.Dk);
    load_tile_async(tiles.V, a.v.row(batch, h, t) + first_column, a.v.stride_l, rows, columns);
    cp_async_commit();
  };
  load(0);

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);

  for (int t = 0; t < a.L; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < a.L) load(t + kChunk);
    const ChunkTiles<Shape> tiles = tiles_of(t);
    typename Shape::Output O = {};
    masked_scores<Shape>(P, tiles.Q, tiles.K);
    add_from_state<Shape>(O, tiles.Q, S);
    __syncthreads();
    add_from_scores<Shape>(O, P, tiles.V);
    update_state<Shape>(S, tiles.K, tiles.V);
    store_output<Shape>(a.o.row(hide_from_compiler(b), h, t) + first_column, a.o.stride_l, a.L - t, columns, O, tiles.V,
                        a.scale);
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void pipelined(const Bf16Arguments& a) {
  select_shape(a.Dk, block_columns(extents_of(a)), [&]<class Shape>(Shape) {
    launch(pipelined_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kThreads, kSharedBytes<Shape>}, a);
  });
}

}  // namespace tutorial::linear_attention
