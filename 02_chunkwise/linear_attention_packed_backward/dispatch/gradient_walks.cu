/// @file
/// The walks of ../../linear_attention_backward/dispatch/gradient_walks.cu in the segments of packed sequences. A block
/// takes its sequence as a problem by itself, so that chunks are counted from where the sequence begins, and rows beyond
/// its end are loaded as zeros and not stored. Only the list of segments knows of the other sequences.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention/dispatch/walk.cuh"
#include "02_chunkwise/linear_attention_backward/dispatch/segments.cuh"
#include "02_chunkwise/linear_attention_packed_backward/dispatch/walks.hpp"
#include "common/device/launch.cuh"
#include "common/tile/carry_both_ways.cuh"
#include "common/tile/packed_gradient_part.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::linear_attention {
namespace {

/// Some positions of a sequence as a walk counts them (direction.cuh).
struct Part {
  static constexpr int b = 0, segment = 0;
  int h, head, begin, end, first_column, columns;

  /// @param from,to its positions @param whole positions of the sequence in whole chunks
  /// @param number of the state that the walk stores
  template <class Shape>
  __device__ __forceinline__ Part(const PackedPart<Shape>& part, int from, int to, int whole, bool is_reversed,
                                  int number = 0)
      : h(part.h), head(number), first_column(part.first_column), columns(part.columns) {
    const int last = (to + kChunk - 1) / kChunk * kChunk;  // from and to are whole chunks but at the sequence's end
    begin = is_reversed ? whole - last : from;
    end = is_reversed ? whole - from : to;
  }
};

/// Kernel 1: at each border the sum that the segment before it adds to S, or the one behind it to dS. Grid packed_grid()
/// of the borders.
/// @param states [plan.states, H, Dk, Dv]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    packed_gradient_states_kernel(Gradient all, PackedPlan plan, const std::int32_t* cu_seqlens, float* states) {
  const PackedGradientPart<Shape> packed(extents_of(all.a), plan, cu_seqlens);
  if (packed.is_empty()) return;
  const Bf16Arguments a = packed.alone(all.a);
  const int whole = whole_chunks(a).L, from = (all.is_reversed ? packed.end : packed.begin) - packed.first;
  const Part part(packed, from, min(from + plan.length, a.L), whole, all.is_reversed, packed.entry * a.H + packed.h);
  const LaunchPlan one_state{.segments = 2, .length = part.end - part.begin};
  compute_segment_state<Shape, false>(a, one_state, part, EitherWay{all.is_reversed, whole - kChunk}, states, nullptr);
}

/// Kernel 3. Grid packed_grid() of all segments.
/// @param starts [plan.states, H, Dk, Dv], in the layout of the user's states
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    packed_gradient_walk_kernel(Gradient all, PackedPlan plan, const std::int32_t* cu_seqlens, const float* starts) {
  const PackedGradientPart<Shape> packed(extents_of(all.a), plan, cu_seqlens);
  if (packed.is_empty()) return;
  const Bf16Arguments a = packed.alone(all.a);
  const bool is_reversed = all.is_reversed;
  const int whole = whole_chunks(a).L;
  const Part part(packed, packed.begin - packed.first, packed.end - packed.first, whole, is_reversed);
  walk_segment<Shape, false>(
      a, LaunchPlan(), Normalizer{}, part, packed.is_at_end(plan, is_reversed) ? part.end : part.end + 1,
      EitherWay{is_reversed, whole - kChunk},
      [&](typename Shape::State& S) {
        const int border = packed.start_border(plan, is_reversed);
        const bool is_at_border = border >= 0;
        const StateStrides strides = all.strides(!is_at_border       ? a.initial_state.stride_l
                                                 : all.is_transposed ? a.Dk
                                                                     : a.Dv);
        const float* start = a.initial_state.data ? a.initial_state.row(0, part.h, 0) : nullptr;
        if (is_at_border) start = starts + (std::int64_t(border) * a.H + part.h) * a.Dk * a.Dv;
        load_state<Shape>(S, start ? start + part.first_column * strides.column : nullptr, strides, a.Dk, part.columns);
        scale_state<Shape>(S, is_at_border ? 1 : all.start_factor);
      },
      [&](typename Shape::State& S) {
        scale_state<Shape>(S, a.scale);
        store_state<Shape>(a.final_state.row(0, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                           part.columns);
      });
}

}  // namespace

void packed_gradient_walks(const PackedBf16BackwardArguments& p, PackedPlan plan) {
  const Bf16BackwardArguments& b = p.all;
  const std::array<Gradient, 3> gradients = gradients_of(b);
  plan.segments = list_segments(p.cu_seqlens, plan);
  float *S = nullptr, *dS = nullptr;
  if (plan.states > 0) {
    const std::size_t elements = std::size_t(plan.states) * b.H * std::size_t(b.Dk) * b.Dv;
    S = workspace<float>("linear_attention --backward: packed segments", 2 * elements);
    dS = S + elements;
    Gradient forwards = gradients[2];  // its k_t^T v_t, summed up, are S, those of gradients[2] dS / scale
    forwards.a.k = b.k, forwards.a.v = b.v, forwards.is_reversed = false;
    select_shape(b.Dk, plan.columns, [&]<class Shape>(Shape) {
      const LaunchConfig config{packed_grid<Shape>(extents_of(forwards.a), plan.states), kThreads,
                                kPipelineDepthForStates * StateTiles<Shape>::kBytes};
      launch(packed_gradient_states_kernel<Shape>, config, forwards, plan, p.cu_seqlens, S);
      launch(packed_gradient_states_kernel<Shape>, config, gradients[2], plan, p.cu_seqlens, dS);
    });
    carry_both_ways(BorderStates<NoDecay>{b.initial_state, 1, S, {}},
                    BorderStates<NoDecay>{b.dfinal_state, 1 / b.scale, dS, {}}, plan, b.H, b.Dk, b.Dv);
  }
  for (const Gradient& gradient : gradients) {
    select_shape(gradient.a.Dk, plan.columns, [&]<class Shape>(Shape) {
      launch(packed_gradient_walk_kernel<Shape>,
             {packed_grid<Shape>(extents_of(gradient.a), plan.entries()), kThreads, kSharedBytes<Shape, false>},
             gradient, plan, p.cu_seqlens, gradient.is_reversed ? dS : S);
    });
  }
  hand_states_on(p);
}

}  // namespace tutorial::linear_attention
