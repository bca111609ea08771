#pragma once
/// @file
/// The elements of the scan: affine maps y -> exp(log_decay) y + value, and their composition.
///
/// A step of the recurrence is such a map, and so is a run of steps: it maps the y before the run to the y after it.
/// Composition is associative, so any grouping of a run gives the same map. It does not commute, so the order must be
/// kept. The factor is kept as its logarithm: to multiply factors between 0 and 1, numbers of one sign are added, which
/// neither overflows nor cancels. The last map then also holds the sum of all gates of the sequence. exp is taken of a
/// sum, never of a difference of two sums: exp(-1e4) is 0, and everything after such a gate is as exact as if the
/// sequence began there.
/// Source: Blelloch, CMU-CS-90-190, section 1.4.1.

#include <cmath>

#include "common/view.hpp"

namespace tutorial::scan {

/// The map y -> exp(log_decay) y + value. Identity unless given.
/// @tparam T float, or double on the CPU
template <class T>
struct Affine {
  T log_decay = 0;
  T value = 0;
};

/// exp(log_decay), as wide as T. In a kernel it is a multiplication and one instruction of the hardware, off by 2^-22
/// at most (for small values relatively more: by 2^-19 at -40), and 0 below 2^-126: expf() takes eight instructions,
/// and scans would wait for them more than for memory.
TUTORIAL_HOST_DEVICE inline float decay(float log_decay) {
#if defined(__CUDA_ARCH__)
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(log_decay * 1.44269504f));  // log2(e)
  return power;
#else
  return expf(log_decay);
#endif
}
/// exp(log_decay) in double.
TUTORIAL_HOST_DEVICE inline double decay(double log_decay) {
  return exp(log_decay);
}

/// What the map makes of y. Infinite if exp(log_decay) overflows, which cannot happen for a gate, because its logarithm
/// is at most 0.
template <class T>
TUTORIAL_HOST_DEVICE T apply(const Affine<T>& map, T y) {
  return decay(map.log_decay) * y + map.value;
}

/// The map that does what `first` does and then what `second` does: second after first.
template <class T>
TUTORIAL_HOST_DEVICE Affine<T> compose(const Affine<T>& first, const Affine<T>& second) {
  return {first.log_decay + second.log_decay, apply(second, first.value)};
}

}  // namespace tutorial::scan
