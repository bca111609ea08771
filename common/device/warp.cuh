#pragma once
/// @file
/// Sums, maxima and prefix sums over the 32 lanes of a warp, all of which must call: where some do not, it is undefined
/// on a GPU and ends the launch with a report on the emulator. T is a type that CUDA's shuffles take.

#include <cuda_runtime.h>

#include "common/device/source_location.hpp"

#if TUTORIAL_EMULATOR
#include <emulator/warp.hpp>
#endif

namespace tutorial {

/// The mask of a whole warp.
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

/// The number of this thread within its warp, 0 to 31. Needs no other lane.
__device__ __forceinline__ unsigned lane_index() {
#if TUTORIAL_EMULATOR
  return emulator::lane();
#else
  unsigned lane;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  return lane;
#endif
}

/// The value of the lane whose number differs in the bits of `flipped`, 0 to 31.
template <class T>
__device__ __forceinline__ T shuffle_xor(T value, int flipped,
                                         [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
#if TUTORIAL_EMULATOR
  return __shfl_xor_sync(kAllLanes, value, flipped, 32, where);
#else
  return __shfl_xor_sync(kAllLanes, value, flipped);
#endif
}

/// `value`, which is the same in all lanes, and of which the compiler then knows that. Instructions that take uniform
/// registers, such as bulk copies, otherwise stand in a loop over the different values of the lanes. Called by all lanes.
__device__ __forceinline__ int uniform(int value) {
#if !TUTORIAL_EMULATOR
  value = __shfl_sync(kAllLanes, value, 0);
#endif
  return value;
}

/// The value of the lane `distance` below, 0 to 31; the lowest lanes get their own.
template <class T>
__device__ __forceinline__ T shuffle_up(T value, unsigned distance,
                                        [[maybe_unused]] SourceLocation where = SourceLocation::current()) {
#if TUTORIAL_EMULATOR
  return __shfl_up_sync(kAllLanes, value, distance, 32, where);
#else
  return __shfl_up_sync(kAllLanes, value, distance);
#endif
}

/// The sum over each group of `kWidth` consecutive lanes (a power of two up to 32). Every lane gets it, with the same
/// bits: in each of the log2(kWidth) steps the two lanes of a pair add the same two numbers.
template <int kWidth = 32, class T>
__device__ __forceinline__ T warp_sum(T value, SourceLocation where = SourceLocation::current()) {
  for (int flipped = kWidth / 2; flipped > 0; flipped /= 2) value += shuffle_xor(value, flipped, where);
  return value;
}

/// The sums of four values over the 32 lanes. Each lane gets one of them: sum number lane / 8. Four warp_sum() take
/// 4 x 5 shuffles. Here a lane hands over two of its four values in the first step and keeps two, in the second step it
/// hands over one of two, and then has a single one for the other three steps: 2 + 1 + 3 shuffles.
/// @param lane lane_index(), which the caller has at hand
__device__ __forceinline__ float warp_sum_of_four(const float (&x)[4], int lane,
                                                  SourceLocation where = SourceLocation::current()) {
  const bool upper = lane & 16, odd = lane & 8;
  float y[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) y[i] = (upper ? x[i + 2] : x[i]) + shuffle_xor(upper ? x[i] : x[i + 2], 16, where);
  float z = (odd ? y[1] : y[0]) + shuffle_xor(odd ? y[0] : y[1], 8, where);
#pragma unroll
  for (int flipped = 4; flipped > 0; flipped /= 2) z += shuffle_xor(z, flipped, where);
  return z;
}

/// The largest value of each group of `kWidth` consecutive lanes. Every lane gets it.
template <int kWidth = 32, class T>
__device__ __forceinline__ T warp_max(T value, SourceLocation where = SourceLocation::current()) {
  for (int flipped = kWidth / 2; flipped > 0; flipped /= 2) value = max(value, shuffle_xor(value, flipped, where));
  return value;
}

/// The sum of this lane's value and those of all lanes below, in five steps: Hillis and Steele's scan ("Data parallel
/// algorithms", Communications of the ACM 29(12), 1986).
template <class T>
__device__ __forceinline__ T warp_prefix_sum(T value, SourceLocation where = SourceLocation::current()) {
  const unsigned lane = lane_index();
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const T below = shuffle_up(value, distance, where);
    if (lane >= distance) value += below;
  }
  return value;
}

}  // namespace tutorial
