/// @file
/// Stage 9, `segments`: the sequence is cut into segments, which are walked at once.
///
/// Idea: all that a segment needs of the positions before it is one state. A first kernel reads only K and V and leaves
/// each segment's own sum of k_t^T v_t. A second, tiny kernel (common/tile/carry.cuh) adds these sums up from left to
/// right and so finds the state that each segment starts from. Then `pipelined`'s kernel walks all segments at the same
/// time.
///
///     segment       0            1            2            3
///     kernel 1   K^T V ->X_0  K^T V ->X_1  K^T V ->X_2                     at once: reads K, V
///     kernel 2      S_0 -> + X_0 -----> + X_1 -----> + X_2                 a running sum
///                    |         |          |            |
///     kernel 3     walk      walk       walk         walk -> S_L           at once: reads Q, K, V, writes O
///
/// (S_0 is the initial state, S_L the final one.) The stage is `materialized` with segments in the place of chunks. It,
/// too, computes states first and outputs later. But it leaves one state per segment in memory instead of one per
/// chunk, and its outputs come from a walk.
/// Grows out of: 8_pipelined.cu
/// Improves on: `pipelined` has only one block per head and tile of Dv.
/// Unchanged: the kernel of `pipelined`.
/// Equation:
///
///   X_m = sum of k_t^T v_t in segment m     start of segment m + 1 = S_0 + X_0 + ... + X_m     `pipelined` from there
///
/// Shapes: as `tensor_core`; the X_m, and in their place the starts, [B, H, segments - 1, Dk, Dv] fp32 in device
/// memory.
/// Thread mapping: kernels 1 and 3 as `pipelined`, one block per tile of Dv and segment. Kernel 1 walks its segment
/// from the end to the beginning: the order of a sum does not matter, and the chunks that it reads last are those that
/// kernel 3 reads first. They are then still in the second-level cache. Kernel 2 has one thread per element of the
/// state.
/// Resources: kernel 1 has three sets of K and V, 96 KB at Dk = Dv = 128, two blocks per multiprocessor.
/// Work: that of `pipelined`, and 2 Dk Dv operations per position for kernel 1.
/// Bytes: K and V are read a second time, except for the last segment's. Kernel 1 writes each segment's state, kernel 2
/// reads and writes it, kernel 3 reads it.
/// Bound by: the memory's bandwidth, with two blocks per multiprocessor; for short sequences, the starts and ends of
/// three kernels.
/// Requires: what `tensor_core` requires.
/// Weakness: K and V are read twice, and short sequences pay for three launches. `dispatch` chooses.
/// Sources: the scan (running sum) over segments is Blelloch's reduce-then-scan, "Prefix Sums and Their Applications"
/// (1990), with one sequential scan in the middle; flash-linear-attention splits sequences over GPUs in the same way.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/carry_states.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/column_products.cuh"
#include "common/tile/grid.cuh"
#include "common/tile/launch_plan.hpp"
#include "common/tile/load_state.cuh"
#include "common/tile/load_tile_async.cuh"
#include "common/tile/masked_scores.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/store_output.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;           // chunks in shared memory
constexpr int kPipelineDepthForStates = 3;  // the same, in kernel 1

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes + kChunk* kChunk * sizeof(__nv_bfloat16);

/// Kernel 1: the sum of k_t^T v_t of every segment but the last. The chunks of these segments are all whole. Grid
/// (tiles of Dv of these segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_states_kernel(Bf16Arguments a, LaunchPlan plan, float* states) {
  const int tiles_of_head = (a.Dv - 1) / Shape::kDv + 1, segment = int(blockIdx.x) / tiles_of_head;
  const int b = int(blockIdx.z), h = int(blockIdx.y), begin = segment * plan.length;
  const int first_column = int(blockIdx.x) % tiles_of_head * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int n) {
    return StateTiles<Shape>(memory + n % kPipelineDepthForStates * StateTiles<Shape>::kBytes);
  };
  const int chunks = plan.length / kChunk;
  const auto load = [&](int n) {
    if (n < chunks) {
      const StateTiles<Shape> tiles = tiles_of(n);
      const int t = begin + (chunks - 1 - n) * kChunk;  // from the segment's end to its beginning
      load_tile_async(tiles.K, a.k.row(b, h, t), a.k.stride_l, kChunk, a.Dk);
      load_tile_async(tiles.V, a.v.row(b, h, t) + first_column, a.v.stride_l, kChunk, columns);
    }
    cp_async_commit();  // an empty group near the end keeps the count right
  };
  load(0);
  load(1);
  typename Shape::State S = {};
  for (int n = 0; n < chunks; ++n) {
    cp_async_wait<1>();
    __syncthreads();
    load(n + 2);
    update_state<Shape>(S, tiles_of(n).K, tiles_of(n).V);
  }
  float* state = states + ((std::int64_t(b) * a.H + h) * (plan.segments - 1) + segment) * a.Dk * a.Dv;
  store_state<Shape>(state + first_column, S, a.Dv, a.Dk, columns);
}

/// Kernel 3. Grid (tiles of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) walk_kernel(Bf16Arguments a, LaunchPlan plan) {
  const int tiles_of_head = (a.Dv - 1) / Shape::kDv + 1, segment = int(blockIdx.x) / tiles_of_head;
  const int b = int(blockIdx.z), h = int(blockIdx.y), begin = segment * plan.length;
  const int first_column = int(blockIdx.x) % tiles_of_head * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  const int end = begin + min(plan.length, a.L - begin);
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) {
    return ChunkTiles<Shape>(memory + t / kChunk % kPipelineDepth * ChunkTiles<Shape>::kBytes);
  };
  const typename Shape::ScoreTile P{
      reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes)};

  const auto load = [&](int t) {
    const ChunkTiles<Shape> tiles = tiles_of(t);
    const int rows = end - t, batch = hide_from_compiler(b);
    load_tile_async(tiles.Q, a.q.row(batch, h, t), a.q.stride_l, rows, a.Dk);
    load_tile_async(tiles.K, a.k.row(batch, h, t), a.k.stride_l, rows, a.Dk);
    load_tile_async(tiles.V, a.v.row(batch, h, t) + first_column, a.v.stride_l, rows, columns);
    cp_async_commit();
  };
  load(begin);

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  if (segment > 0) {
    const std::int64_t number = (std::int64_t(b) * a.H + h) * (plan.segments - 1) + segment - 1;
    start = plan.starts + number * a.Dk * a.Dv + first_column;
  }
  load_state<Shape>(S, start, segment > 0 ? a.Dv : a.initial_state.stride_l, a.Dk, columns);

  for (int t = begin; t < end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < end) load(t + kChunk);
    const ChunkTiles<Shape> tiles = tiles_of(t);
    typename Shape::Output O = {};
    masked_scores<Shape>(P, tiles.Q, tiles.K);
    add_from_state<Shape>(O, tiles.Q, S);
    __syncthreads();
    add_from_scores<Shape>(O, P, tiles.V);
    update_state<Shape>(S, tiles.K, tiles.V);
    store_output<Shape>(a.o.row(hide_from_compiler(b), h, t) + first_column, a.o.stride_l, end - t, columns, O, tiles.V,
                        a.scale);
  }
  if (end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void segments(const Bf16Arguments& a) {
  const Extents extents = extents_of(a);
  LaunchPlan plan = one_wave(extents);
  select_shape(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    if (const int count = plan.segments - 1; count > 0) {
      float* states = workspace<float>("linear_attention: states", std::size_t(segments_memory(a)) / 4);
      launch(segment_states_kernel<Shape>,
             {grid_of<Shape>(extents, count), kThreads, kPipelineDepthForStates * StateTiles<Shape>::kBytes}, a, plan,
             states);
      carry_states(a.B, a.H, a.Dk, count, CarriedStates<>{a.initial_state, a.Dv, states});
      plan.starts = states;
    }
    launch(walk_kernel<Shape>, {grid_of<Shape>(extents, plan.segments), kThreads, kSharedBytes<Shape>}, a, plan);
  });
}

}  // namespace tutorial::linear_attention
