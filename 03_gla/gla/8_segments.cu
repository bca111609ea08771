/// @file
/// `segments`: the sequence is cut into segments, which are walked at once; with gates, a segment also has a
/// decay.
///
/// Idea: all that a segment needs of the positions before it is one state, as in chapter 02's `segments`. A
/// first kernel walks all segments from a state of zeros and computes no outputs. It leaves the state H_m that segment
/// m ends with, and the segment's decay D_m, which is the product of the decays of its sub-chunks. A second, tiny
/// kernel computes from them the state that each segment starts from. Then all segments are walked at the same time.
///
///     segment       0               1               2               3
///     kernel 1   H_0, D_0        H_1, D_1        H_2, D_2                              at once: reads k~, decays, v
///     kernel 2      S_0 -> D_0 S_0 + H_0 -> D_1 (that) + H_1 -> D_2 (that) + H_2       one thread per element
///     kernel 3     walk            walk            walk            walk -> S_L         at once
///
/// Grows out of: 7_subchunk_walk.cu
/// Improves on: `subchunk_walk` has only one block per head and tile of Dv.
/// Unchanged: prepare(), and the walk, which now starts at its segment's first position.
/// Equation:
///
///     H_m = the state after segment m if the one before it is 0      D_m = the product of D_r, r in segment m
///     start of segment m + 1 = diag(D_m) (start of segment m) + H_m     the first segment starts from S_0
///
/// Shapes: as in `subchunk_walk`; H_m [B, H, segments - 1, Dk, Dv] and D_m [B, H, segments - 1, Dk], fp32, in device
/// memory.
/// Thread mapping: block (tile and segment, h, b) of kernels 1 and 3, otherwise as in `subchunk_walk`.
/// Resources: kernel 1: three sets of tiles, 100 KB of shared memory at Dk = Dv = 128. Both kernels: two blocks per
/// multiprocessor.
/// Work: that of `subchunk_walk`, and in kernel 1 its part for the state once more.
/// Bytes: those of `subchunk_walk`; k~, decays and v a second time, except those of the last segment; H_m is written,
/// read and written by kernel 2, and read again.
/// Bound by: the memory's bandwidth and the tensor cores. With two warps per scheduler, neither limit is reached.
/// Requires: as in `subchunk_walk`.
/// Weakness: the second read and two more launches, even if one segment would fill the GPU. And q~ and k~ pass through
/// device memory between prepare() and the walk.
/// Sources: chapter 02's `segments`.

#include <cuda_runtime.h>

#include "03_gla/gla/launch_plan.hpp"
#include "03_gla/gla/prepare.hpp"
#include "03_gla/gla/prepared_tiles.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/walk_sub_chunk.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;           // chunks in shared memory
constexpr int kPipelineDepthForStates = 3;  // the same, in kernel 1

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* DecayedTiles<Shape>::kBytes;

/// Kernel 1: H_m and D_m of every segment but the last. All chunks of these segments are whole. Grid (tiles of Dv of
/// these segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param decays [B, H, segments - 1, Dk]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_states_kernel(Bf16Arguments a, Prepared prepared, LaunchPlan plan, float* states, float* decays) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const auto tiles_of = [&](int t) {
    return DecayedTiles<Shape>(dynamic_shared<unsigned char>() +
                               t / kChunk % kPipelineDepthForStates * DecayedTiles<Shape>::kBytesForStates);
  };
  const auto load = [&](int t) {
    if (t < part.end) {
      load_for_states(tiles_of(t), a, prepared, hide_from_compiler(part.b), part.h, t, part.first_column, part.columns);
    }
    cp_async_commit();  // near the end an empty group keeps the count right
  };
  load(part.begin);
  load(part.begin + kChunk);
  typename Shape::State S = {};
  constexpr int kRows = (Shape::kDk + kThreads - 1) / kThreads;  // of the state: the thread multiplies their decays
  float decay[kRows];
#pragma unroll
  for (float& x : decay) x = 1;
  for (int t = part.begin; t < part.end; t += kChunk) {
    cp_async_wait<1>();
    __syncthreads();
    load(t + 2 * kChunk);
    const DecayedTiles<Shape> tiles = tiles_of(t);
    float O[Shape::kWarpColumns / 8][4];  // unused
#pragma unroll 1
    for (int row = 0; row < kChunk; row += kSubChunk) walk_sub_chunk<Shape, false>(S, O, tiles, row);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int d = int(threadIdx.x) + i * kThreads;
      for (int r = 0; d < Shape::kDk && r < kSubChunks; ++r) decay[i] *= tiles.decays[r * Shape::kDk + d];
    }
  }
  const std::int64_t segment = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  store_state<Shape>(states + segment * a.Dk * a.Dv + part.first_column, S, a.Dv, a.Dk, part.columns);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int d = int(threadIdx.x) + i * kThreads;
    if (part.first_column == 0 && d < a.Dk) store_global(decays + segment * a.Dk + d, decay[i]);
  }
}

/// Kernel 3. Grid (tiles of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    subchunk_kernel(Bf16Arguments a, Prepared prepared, LaunchPlan plan) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, begin = part.begin, end = part.end;
  const int first_column = part.first_column, columns = part.columns;
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
  load(begin);

  typename Shape::State S;
  part.load_start(S, a.initial_state, plan, extents_of(a));

  for (int t = begin; t < end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < end) load(t + kChunk);
    const DecayedTiles<Shape> tiles = tiles_of(t);
#pragma unroll 1
    for (int row = 0; row < kChunk; row += kSubChunk) {
      float O[Shape::kWarpColumns / 8][4] = {};
      walk_sub_chunk<Shape, true>(S, O, tiles, row);
      put_output<Shape>(tiles.V, O, row, a.scale);
    }
    store_warp_columns<Shape>(a.o.row(hide_from_compiler(b), h, t) + first_column, a.o.stride_l, end - t, columns,
                              tiles.V);
  }
  if (end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

LaunchPlan with_starts(const Bf16Arguments& a, const Prepared& prepared, LaunchPlan plan) {
  const int count = plan.segments - 1;
  if (count == 0) return plan;
  const std::int64_t rows = std::int64_t(a.B) * a.H * count * a.Dk;
  float* states = workspace<float>("gla: states of segments", std::size_t(rows * a.Dv));
  float* decays = workspace<float>("gla: decays of segments", std::size_t(rows));
  select_shape(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    launch(segment_states_kernel<Shape>,
           {grid_of<Shape>(extents_of(a), count), kThreads,
            kPipelineDepthForStates * std::size_t(DecayedTiles<Shape>::kBytesForStates)},
           a, prepared, plan, states, decays);
  });
  carry_states(a.B, a.H, a.Dk, count, CarriedStates<RowDecay<1>>{a.initial_state, a.Dv, states, {decays, a.Dk}});
  plan.starts = states;
  return plan;
}

void walk(const Bf16Arguments& a, const LaunchPlan& plan) {
  const Prepared prepared = prepare(a);
  const LaunchPlan started = with_starts(a, prepared, plan);
  select_shape(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    launch(subchunk_kernel<Shape>, {grid_of<Shape>(extents_of(a), plan.segments), kThreads, kSharedBytes<Shape>}, a,
           prepared, started);
  });
}

void walk_segments(const Bf16Arguments& a) {
  walk(a, one_wave(extents_of(a)));
}

}  // namespace tutorial::gla
