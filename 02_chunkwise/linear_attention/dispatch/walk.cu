/// @file
/// The kernels of walk.cuh for the operator itself.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention/dispatch/walk.cuh"
#include "02_chunkwise/linear_attention/dispatch/walk.hpp"
#include "common/device/launch.cuh"
#include "common/tile/select_shape.cuh"

namespace tutorial::linear_attention {
namespace {

/// Kernel 1, for every segment but the last. The chunks of these segments are all whole. Grid (tiles of Dv of these
/// segments, H, B).
/// @param states,normalizers see compute_segment_state()
template <class Shape, bool kNormalized>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_states_kernel(Bf16Arguments a, LaunchPlan plan, float* states, float* normalizers) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  compute_segment_state<Shape, kNormalized>(a, plan, part, Forwards(), states, normalizers);
}

/// Kernel 3. Grid (tiles of Dv of all segments, H, B).
template <class Shape, bool kNormalized>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    walk_kernel(Bf16Arguments a, LaunchPlan plan, Normalizer normalizer) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  walk_segment<Shape, kNormalized>(
      a, plan, normalizer, part, a.L, Forwards(),
      [&](typename Shape::State& S) { part.load_start(S, a.initial_state, plan, extents_of(a)); },
      [&](typename Shape::State& S) {
        store_state<Shape>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                           part.columns);
      });
}

template <class Shape, bool kNormalized>
void launch_segment_states(const Bf16Arguments& a, const LaunchPlan& plan, int count, float* states, float* sums_of_k) {
  launch(segment_states_kernel<Shape, kNormalized>,
         {grid_of<Shape>(extents_of(a), count), kThreads, kPipelineDepthForStates * StateTiles<Shape>::kBytes}, a, plan,
         states, sums_of_k);
}

template <class Shape, bool kNormalized>
void launch_walk(const Bf16Arguments& a, const LaunchPlan& plan, const Normalizer& normalizer) {
  in_segments<kNormalized>(
      a, plan, normalizer,
      [&](int count, float* states, float* sums_of_k) {
        launch_segment_states<Shape, kNormalized>(a, plan, count, states, sums_of_k);
      },
      [&](const LaunchPlan& started, const Normalizer& z) {
        launch(walk_kernel<Shape, kNormalized>,
               {grid_of<Shape>(extents_of(a), plan.segments), kThreads, kSharedBytes<Shape, kNormalized>}, a, started,
               z);
      });
}

}  // namespace

void segment_states(const Bf16Arguments& a, const LaunchPlan& plan, int count, float* states) {
  select_shape(a.Dk, plan.columns,
               [&]<class Shape>(Shape) { launch_segment_states<Shape, false>(a, plan, count, states, nullptr); });
}

void walk(const Bf16Arguments& a, const LaunchPlan& plan, const Normalizer* normalizer) {
  select_shape(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    normalizer ? launch_walk<Shape, true>(a, plan, *normalizer) : launch_walk<Shape, false>(a, plan, {});
  });
}

}  // namespace tutorial::linear_attention
