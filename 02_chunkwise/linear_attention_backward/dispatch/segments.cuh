#pragma once
/// @file
/// The states that the segments of the gradients' walks start from.

#include <cuda_runtime.h>

#include <array>
#include <cstdint>

#include "02_chunkwise/linear_attention_backward/gradients.hpp"
#include "common/device/workspace.hpp"
#include "common/tile/carry.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::linear_attention {
namespace {

/// A gradient's sizes, with its positions in whole chunks.
TUTORIAL_HOST_DEVICE tile::Extents whole_chunks(const Bf16Arguments& a) {
  tile::Extents extents = tile::extents_of(a);
  extents.L = (a.L + tile::kChunk - 1) / tile::kChunk * tile::kChunk;
  return extents;
}

/// The memory of S and dS between segments, [B, H, segments - 1, Dk, Dv] each, and the walks that compute them.
struct SegmentStates {
  Bf16BackwardArguments b;
  int count;                       ///< segments except the last
  std::array<Gradient, 2> sums;    ///< walks whose k_t^T v_t, summed up, are S and dS / scale
  std::array<float*, 2> states{};  ///< S and dS / scale

  /// The number of elements of both.
  static std::int64_t elements(const Bf16BackwardArguments& b, const tile::LaunchPlan& plan) {
    return 2 * std::int64_t(b.B) * b.H * (plan.segments - 1) * b.Dk * b.Dv;
  }

  SegmentStates(const Bf16BackwardArguments& arguments, const tile::LaunchPlan& plan)
      : b(arguments), count(plan.segments - 1), sums{gradients_of(b)[2], gradients_of(b)[2]} {
    sums[0].a.k = b.k;
    sums[0].a.v = b.v;
    sums[0].is_reversed = false;
    const std::int64_t all = elements(b, plan);
    states[0] = workspace<float>("linear_attention --backward: segments", std::size_t(all));
    states[1] = states[0] + all / 2;
  }

  /// Replaces each segment's own sum by the state that the next segment starts from.
  void carry() const {
    tile::carry_states(b.B, b.H, b.Dk, count, tile::CarriedStates<>{b.initial_state, b.Dv, states[0]},
                       tile::CarriedStates<>{b.dfinal_state, b.Dv, states[1], {}, sums[1].start_factor});
  }

  /// The states that the segments of gradient number i start from.
  const float* starts(int i) const { return states[i > 0]; }
};

/// The state that a segment starts from: the address of the block's first column, and a factor.
struct SegmentStart {
  const float* state;  ///< null: zeros
  tile::StateStrides strides;
  float factor;
};

/// @param starts [B, H, segments - 1] states of the user's shape
template <class Part>
__device__ __forceinline__ SegmentStart start_of(const Gradient& g, const tile::LaunchPlan& plan, const Part& part,
                                                 const float* starts) {
  const Bf16Arguments& a = g.a;
  SegmentStart start{a.initial_state.data ? a.initial_state.row(part.b, part.h, 0) : nullptr,
                     g.strides(a.initial_state.stride_l), g.start_factor};
  if (part.segment > 0) {
    const std::int64_t number = std::int64_t(part.head) * (plan.segments - 1) + part.segment - 1;
    start = {starts + number * a.Dk * a.Dv, g.strides(g.is_transposed ? a.Dk : a.Dv), 1};
  }
  if (start.state) start.state += part.first_column * start.strides.column;
  return start;
}

}  // namespace
}  // namespace tutorial::linear_attention
