/// @file
/// The three gradients by the kernels of linear_attention/dispatch/walk.cuh, one after the other.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention/dispatch/walk.cuh"
#include "02_chunkwise/linear_attention_backward/dispatch/segments.cuh"
#include "02_chunkwise/linear_attention_backward/dispatch/walks.hpp"
#include "common/device/launch.cuh"
#include "common/tile/select_shape.cuh"

namespace tutorial::linear_attention {
namespace {

/// Kernel 1, for every segment but the last. Grid (tiles of Dv of these segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    gradient_states_kernel(Gradient g, LaunchPlan plan, float* states) {
  const Extents extents = whole_chunks(g.a);
  const BlockPart<Shape> part(extents, plan.length);
  compute_segment_state<Shape, false>(g.a, plan, part, EitherWay{g.is_reversed, extents.L - kChunk}, states, nullptr);
}

/// Kernel 3. Grid (tiles of the gradient's columns of all segments, H, B).
/// @param starts [B, H, segments - 1, Dk, Dv], in the layout of the user's states
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    gradient_walk_kernel(Gradient g, LaunchPlan plan, const float* starts) {
  const Bf16Arguments& a = g.a;
  const Extents extents = whole_chunks(a);
  const BlockPart<Shape> part(extents, plan.length);
  walk_segment<Shape, false>(
      a, plan, Normalizer{}, part, extents.L, EitherWay{g.is_reversed, extents.L - kChunk},
      [&](typename Shape::State& S) {
        const SegmentStart start = start_of(g, plan, part, starts);
        load_state<Shape>(S, start.state, start.strides, a.Dk, part.columns);
        scale_state<Shape>(S, start.factor);
      },
      [&](typename Shape::State& S) {
        scale_state<Shape>(S, a.scale);
        store_state<Shape>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                           part.columns);
      });
}

}  // namespace

void gradient_walks(const Bf16BackwardArguments& b, const LaunchPlan& plan) {
  const float* starts[3] = {};
  if (const int count = plan.segments - 1; count > 0) {
    const SegmentStates states(b, plan);
    select_shape(b.Dk, plan.columns, [&]<class Shape>(Shape) {
      for (int i = 0; i < 2; ++i) {
        launch(gradient_states_kernel<Shape>,
               {grid_of<Shape>(extents_of(states.sums[i].a), count), kThreads,
                kPipelineDepthForStates * StateTiles<Shape>::kBytes},
               states.sums[i], plan, states.states[i]);
      }
    });
    states.carry();
    for (int i = 0; i < 3; ++i) starts[i] = states.starts(i);
  }
  const std::array<Gradient, 3> gradients = gradients_of(b);
  for (int i = 0; i < 3; ++i) {
    const Gradient& gradient = gradients[i];
    select_shape(gradient.a.Dk, plan.columns, [&]<class Shape>(Shape) {
      launch(gradient_walk_kernel<Shape>,
             {grid_of<Shape>(extents_of(gradient.a), plan.segments), kThreads, kSharedBytes<Shape, false>}, gradient,
             plan, starts[i]);
    });
  }
}

}  // namespace tutorial::linear_attention
