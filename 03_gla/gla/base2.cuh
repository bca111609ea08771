#pragma once
/// @file
/// Gates inside kernels are logarithms to base 2.
///
/// What the hardware computes is ex2, a power of two; exp(x) is ex2(x log2(e)), a multiplication for each exponential.
/// A gate is multiplied once, when it is loaded; in stage 6 it takes part in many exponentials.

#include <cuda_runtime.h>

namespace tutorial::gla {

/// The gate exp(g) = 2^base2(g). Below 2^-150 there is no fp32 number but zero: a stronger gate than 2^-256 is taken as
/// that, so that sums of gates stay finite.
__device__ __forceinline__ float base2(float g) {
  constexpr float kLog2E = 1.44269504f;
  return max(g * kLog2E, -256.0f);
}

/// 2^x; 0 where that is below 2^-126, the least normal fp32 number. One instruction: exp2f() takes three more to get
/// the numbers below that right.
/// Source: PTX ISA, "Floating Point Instructions: ex2", which states its error; the emulator's is that of exp2f().
__device__ __forceinline__ float ex2(float x) {
#if TUTORIAL_EMULATOR
  const float power = exp2f(x);
  return power < 0x1p-126f ? 0.0f : power;
#else
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
#endif
}

/// exp(g) for g <= 0, any of them; as ex2(), 0 where that is below 2^-126.
__device__ __forceinline__ float gate(float g) {
  constexpr float kLog2E = 1.44269504f;
  return ex2(g * kLog2E);
}

}  // namespace tutorial::gla
