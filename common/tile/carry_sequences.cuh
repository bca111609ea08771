#pragma once
/// @file
/// Carries states from segment to segment of packed sequences (carry_states.cuh does it for sequences of one length).

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/tile/carry_states.cuh"
#include "common/tile/packed_plan.hpp"
#include "common/view.hpp"

namespace tutorial::tile {
namespace {

inline constexpr int kSequenceThreads = 256;

/// In the place of what each segment adds to a state, the state after it:
///
///     state after segment i  =  decay_i . (state after the segment before it, or the initial state) + own_i
///
/// The blocks of a sequence's first segment go through its segments, one thread per element of the state. Grid (entries,
/// H, blocks of elements).
/// @param initial [N, H, Dk, Dv]; its data is null if it is 0
/// @tparam Decay of the segments, in the order of the states: NoDecay, or a kind of carry.cuh
template <class Decay>
__global__ void __launch_bounds__(kSequenceThreads)
    carry_sequences_kernel(View<const float> initial, PackedPlan plan, int Dk, int Dv, Decay decay, float* states) {
  const int h = int(blockIdx.y), H = int(gridDim.y), element = int(blockIdx.z) * kSequenceThreads + int(threadIdx.x);
  int i = int(blockIdx.x);
  const int4 first = load_global(plan.segments + i);
  if (first.x < 0 || first.w >= 0 || element >= Dk * Dv) return;
  float S = initial.data ? load_global(initial.row(first.x, h, element / Dv) + element % Dv) : 0;
  do {
    const std::int64_t at = std::int64_t(i) * H + h;
    float* state = states + at * Dk * Dv + element;
    S = decay.from(at, element / Dv)[0] * S + load_for_update(state);
    store_global(state, S);
    ++i;
  } while (i < plan.states && load_global(plan.segments + i).w == i - 1);
}

/// Starts it, for a plan with states. @param states [plan.states, H, Dk, Dv]
template <class Decay>
void carry_sequences(const View<const float>& initial, const PackedPlan& plan, const Extents& e, const Decay& decay,
                     float* states) {
  const dim3 grid(unsigned(plan.states), unsigned(e.H), unsigned(ceil_div(e.Dk * e.Dv, kSequenceThreads)));
  launch(carry_sequences_kernel<Decay>, {grid, kSequenceThreads}, initial, plan, e.Dk, e.Dv, decay, states);
}

}  // namespace
}  // namespace tutorial::tile
