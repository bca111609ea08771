/// @file
/// `subchunk_walk`: the sub-chunk is the chunk.
///
/// Idea: the sub-chunks of a chunk can reach each other through the state, as chunks do. A state in device memory would
/// then travel there and back for every 16 positions. Here the state is in registers, in the lanes that need it, and a
/// step costs one multiplication per element. In exchange there are no scores between sub-chunks any more, and so no P
/// with its barrier and no decays between sub-chunks: q~ and k~ are used as prepare() has left them.
/// Grows out of: 6_subchunk_tensor_core.cu
/// Improves on: `subchunk_tensor_core` unpacks, multiplies and rounds all of q~ and k~ and waits at two more barriers.
/// Unchanged: prepare(), and its scores of a sub-chunk with itself. 64 positions are still copied at a time.
/// Equation:
///
///     O_r = scale (q~_r S + P_rr V_r)
///     S   = diag(D_r) S + k~_r^T V_r          for each sub-chunk r
///
/// Shapes: as in `subchunk_tensor_core`, without P.
/// Thread mapping: block (tile, h, b) walks head (b, h) with 128 or 64 columns of Dv, which its 4 warps share; they
/// meet at one barrier per chunk. For each 16 rows of the state a warp rounds its piece to bf16 and multiplies q~ with
/// it, decays the piece, and adds k~^T V to it (walk_sub_chunk.cuh): the multiplications of one piece run beside the
/// mma of another.
/// Resources: 220 registers, 104 KB of shared memory at Dk = Dv = 128: two blocks per multiprocessor.
/// Work: per position 4 Dk Dv + 17 Dv operations on tensor cores, and Dk Dv / 16 multiplications.
/// Bytes: as in `subchunk_tensor_core`.
/// Bound by: with few heads, the time that a block needs for one chunk after the other.
/// Requires: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes.
/// Weakness: there are only B H ceil(Dv / 64) blocks, however long the sequence is.
/// Sources: chunks of 16 throughout: FlashKDA (Moonshot AI), whose kernels for a related operator use them.

#include <cuda_runtime.h>

#include "03_gla/gla/prepare.hpp"
#include "03_gla/gla/prepared_tiles.cuh"
#include "common/device/launch.cuh"
#include "common/tile/block_columns.hpp"
#include "common/tile/grid.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/walk_sub_chunk.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;  // chunks in shared memory

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* DecayedTiles<Shape>::kBytes;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    subchunk_kernel(Bf16Arguments a, Prepared prepared) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) {
    return DecayedTiles<Shape>(memory + t / kChunk % kPipelineDepth * DecayedTiles<Shape>::kBytes);
  };

  const auto load = [&](int t) {
    const DecayedTiles<Shape> tiles = tiles_of(t);
    load_for_states(tiles, a, prepared, hide_from_compiler(b), h, t, first_column, columns);
    load_for_outputs(tiles, a, prepared, hide_from_compiler(b), h, t);
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
    const DecayedTiles<Shape> tiles = tiles_of(t);
#pragma unroll 1
    for (int row = 0; row < kChunk; row += kSubChunk) {
      float O[Shape::kWarpColumns / 8][4] = {};
      walk_sub_chunk<Shape, true>(S, O, tiles, row);
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

void subchunk_walk(const Bf16Arguments& a) {
  const Prepared prepared = prepare(a);
  select_shape(a.Dk, block_columns(extents_of(a)), [&]<class Shape>(Shape) {
    launch(subchunk_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kThreads, kSharedBytes<Shape>}, a, prepared);
  });
}

}  // namespace tutorial::gla
