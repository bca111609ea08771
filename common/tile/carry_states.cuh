#pragma once
/// @file
/// Carries states from segment to segment: each segment gives the state that it computes from zeros, and its decay.
/// From these follows the state that the next segment starts from.
///
///     start of segment s + 1  =  decay_s . (start of segment s) + own_s,      the first starts from `initial`
///
/// One thread per element of the state walks the segments. The loads of eight segments are under way at once.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ceil_div.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/view.hpp"

namespace tutorial::tile {

/// There may be segments from which nothing is carried (carry_gaps.cuh).
///
/// No decay: linear attention. from() gives the decays of one element of the state, in the segments from number `first` =
/// (b H + h) count on; element [i] is the decay of the i-th segment from there, and next() advances. carry.cuh has other
/// kinds of decay.
struct NoDecay {
  struct Decays {
    /// 1 for every segment.
    __device__ __forceinline__ float operator[](int) const { return 1; }
    /// Advances by this number of segments.
    __device__ __forceinline__ void next(int) {}
  };
  /// The decays of any element.
  __device__ __forceinline__ Decays from(std::int64_t, int) const { return {}; }
};

/// The states of all segments but the last, of all heads.
template <class Decay = NoDecay>
struct CarriedStates {
  View<const float> initial;  ///< [B, H, Dk, columns]; its data is null if it is 0
  int columns;                ///< Dv for states, 1 for a normaliser
  float* states;              ///< [B, H, count, Dk, columns]: own_s before, the start of segment s + 1 after
  Decay decay = {};
  float initial_factor = 1;  ///< the first starts from `initial` times this
};

namespace {

inline constexpr int kCarryThreads = 256;
inline constexpr int kCarriedAtOnce = 8;  ///< segments whose loads are under way before the first is used

template <class Decay>
__device__ __forceinline__ void carry(const CarriedStates<Decay>& x, int block, int Dk, int count) {
  const auto d_of = [&](int thread) { return (block * kCarryThreads + thread) / x.columns; };
  const int size = Dk * x.columns, element = block * kCarryThreads + int(threadIdx.x), d = d_of(int(threadIdx.x));
  const std::int64_t first = (std::int64_t(blockIdx.z) * gridDim.y + blockIdx.y) * count;
  bool has_gaps = false;
  if constexpr (requires { Decay::kHasGaps; }) {
    if (x.decay.is_done(first, count, d_of(0), min(d_of(kCarryThreads - 1), Dk - 1))) return;
    has_gaps = Decay::kHasGaps;
  }
  if (element >= size) return;
  float* states = x.states + first * size + element;
  auto decays = x.decay.from(first, d);
  float S = 0;
  if (x.initial.data) {
    S = x.initial_factor * load_global(x.initial.row(blockIdx.z, blockIdx.y, d) + element % x.columns);
  }
  for (int n = 0; n < count; n += kCarriedAtOnce) {
    float own[kCarriedAtOnce], decay[kCarriedAtOnce];
#pragma unroll
    for (int i = 0; i < kCarriedAtOnce; ++i) {
      const bool is_there = n + i < count;
      own[i] = is_there ? load_for_update(states + i * size) : 0.0f;
      decay[i] = is_there ? decays[i] : 1.0f;
    }
#pragma unroll
    for (int i = 0; i < kCarriedAtOnce; ++i) {
      S = has_gaps && decay[i] < 0 ? 0 : decay[i] * S + own[i];
      if (n + i < count) store_global(states + i * size, S);
    }
    states += std::int64_t(kCarriedAtOnce) * size;
    decays.next(kCarriedAtOnce);
  }
}

/// Grid (blocks of elements, of the states and then of the normalisers; H; B).
template <class Decay>
__global__ void __launch_bounds__(kCarryThreads)
    carry_kernel(CarriedStates<Decay> states, CarriedStates<> normalizers, int state_blocks, int Dk, int count) {
  const int block = int(blockIdx.x);
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (block < state_blocks) {
    carry(states, block, Dk, count);
  } else {
    carry(normalizers, block - state_blocks, Dk, count);
  }
}

/// Carries the states of B H heads, and in the same launch those of their normalisers, if there are any, or other
/// states with the same number of rows that do not decay.
/// @param count segments except the last, 1 or more
/// @param starts_early if the kernel before lets it (common/device/early_start.cuh); the next kernel may in any case
/// @throws CudaError if the launch is refused
template <class Decay>
void carry_states(int B, int H, int Dk, int count, const CarriedStates<Decay>& states,
                  const CarriedStates<>& normalizers = {}, bool starts_early = false) {
  const auto blocks_of = [&](int columns) { return ceil_div(std::int64_t(Dk) * columns, kCarryThreads); };
  const int state_blocks = blocks_of(states.columns),
            z_blocks = normalizers.states ? blocks_of(normalizers.columns) : 0;
  LaunchConfig config(dim3(unsigned(state_blocks + z_blocks), unsigned(H), unsigned(B)), kCarryThreads);
  config.starts_early = starts_early;
  launch(carry_kernel<Decay>, config, states, normalizers, state_blocks, Dk, count);
}

}  // namespace
}  // namespace tutorial::tile
