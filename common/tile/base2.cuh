#pragma once
/// @file
/// A gate is exp(g); kernels write it 2^b with b = g / ln 2.
///
/// The hardware computes ex2, a power of two; exp(x) is ex2(x log2(e)), one multiplication per exponential. g is
/// multiplied once, when it is loaded; after that it may take part in many exponentials.

#include <cuda_runtime.h>

namespace tutorial::tile {

/// The logarithm of the gate exp(g) = 2^base2(g). Below 2^-150 zero is the only fp32 number. So a gate of less than
/// 2^-256 is replaced by 2^-256, which keeps sums of logarithms finite.
__device__ __forceinline__ float base2(float g) {
  constexpr float kLog2E = 1.44269504f;
  return max(g * kLog2E, -256.0f);
}

/// 2^x, or 0 if that is below 2^-126, the least normal fp32 number. It is one instruction. exp2f() takes three more to
/// compute smaller numbers correctly.
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

/// The gate exp(g) for any g <= 0; like ex2(), 0 if that is below 2^-126.
__device__ __forceinline__ float gate(float g) {
  constexpr float kLog2E = 1.44269504f;
  return ex2(g * kLog2E);
}

}  // namespace tutorial::tile
