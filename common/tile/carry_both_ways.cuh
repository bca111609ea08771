#pragma once
/// @file
/// Carries states over the borders of packed sequences' segments in both directions, for gradients: S from the beginning
/// of each sequence, dS from its end (carry_sequences.cuh does it for S alone).

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/packed_plan.hpp"
#include "common/view.hpp"

namespace tutorial::tile {

/// The states at the borders, of one direction. Border i is that between entry i of the plan's list, which another
/// segment follows, and this other segment.
/// @tparam Decay of each of the segments in the order of the borders; carry.cuh has the kinds
template <class Decay>
struct BorderStates {
  View<const float> start;  ///< [N, H, Dk, Dv]: where a sequence's walk starts from; its data is null if it is 0
  float start_factor;       ///< it starts from `start` times this
  float*
      states;  ///< [states, H, Dk, Dv]: what the segment before the border adds, seen in the walk's direction; then the
               ///< state at the border
  Decay decay;  ///< of that segment
};

namespace {

inline constexpr int kBothWaysThreads = 256;

/// One thread per element of the state of each sequence goes from border to border. Grid (borders, H, blocks of elements
/// of S and then of dS): the blocks of a sequence's first border have S, those of its last border dS.
template <class Decay>
__global__ void __launch_bounds__(kBothWaysThreads)
    carry_both_ways_kernel(BorderStates<Decay> forwards, BorderStates<Decay> backwards, PackedPlan plan, int Dk,
                           int Dv) {
  const int h = int(blockIdx.y), H = int(gridDim.y), blocks = int(gridDim.z) / 2;
  const bool is_from_end = int(blockIdx.z) >= blocks;
  const int element = int(blockIdx.z) % blocks * kBothWaysThreads + int(threadIdx.x);
  int i = int(blockIdx.x);
  // The border before entry i + 1 is i, if they are of one sequence.
  const auto is_last = [&] { return i + 1 == plan.states || load_global(plan.segments + i + 1).w != i; };
  const auto is_first = [&] { return load_global(plan.segments + i).w < 0; };
  const int sequence = load_global(plan.segments + i).x;
  if (sequence < 0 || element >= Dk * Dv || !(is_from_end ? is_last() : is_first())) return;
  const BorderStates<Decay> x = is_from_end ? backwards : forwards;
  const int d = element / Dv;
  float S = x.start.data ? x.start_factor * load_global(x.start.row(sequence, h, d) + element % Dv) : 0;
  while (true) {
    const std::int64_t at = std::int64_t(i) * H + h;
    float* state = x.states + at * Dk * Dv + element;
    S = x.decay.from(at, d)[0] * S + load_for_update(state);
    store_global(state, S);
    if (is_from_end ? is_first() : is_last()) return;
    i += is_from_end ? -1 : 1;
  }
}

/// Starts it, for a plan with states.
template <class Decay>
void carry_both_ways(const BorderStates<Decay>& forwards, const BorderStates<Decay>& backwards, const PackedPlan& plan,
                     int H, int Dk, int Dv) {
  const dim3 grid(unsigned(plan.states), unsigned(H), unsigned(2 * ceil_div(Dk * Dv, kBothWaysThreads)));
  launch(carry_both_ways_kernel<Decay>, {grid, kBothWaysThreads}, forwards, backwards, plan, Dk, Dv);
}

}  // namespace
}  // namespace tutorial::tile
