#pragma once
/// @file
/// Products of bf16 numbers and factors that need more than the 8 bits of bf16, by bf16 arithmetic.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/device/pack.cuh"

namespace tutorial {

/// A factor for each of two bf16 numbers, as the sum of two bf16 numbers: 16 bits of it instead of 8.
struct SplitFactors {
  std::uint32_t upper, lower;  ///< pack() of the factors, and of what its rounding left

  /// Splits a pair of factors.
  static __device__ __forceinline__ SplitFactors of(float first, float second) {
    const std::uint32_t upper = pack(first, second);
    const float2 rounded = unpack(upper);
    return {upper, pack(first - rounded.x, second - rounded.y)};
  }
};

/// Both bf16 numbers of a register, each times its factor, rounded once: in two instructions for both, where fp32 takes
/// five. The product with `lower` is rounded, too, but it is so small that this changes the result by at most 2^-17.
__device__ __forceinline__ std::uint32_t scaled(std::uint32_t bits, const SplitFactors& factors) {
#if TUTORIAL_EMULATOR
  const float2 two = unpack(bits), upper = unpack(factors.upper), lower = unpack(factors.lower);
  const float2 rest = unpack(pack(two.x * lower.x, two.y * lower.y));
  return pack(fmaf(two.x, upper.x, rest.x), fmaf(two.y, upper.y, rest.y));
#else
  __nv_bfloat162 two, upper, lower;
  memcpy(&two, &bits, sizeof bits);
  memcpy(&upper, &factors.upper, sizeof upper);
  memcpy(&lower, &factors.lower, sizeof lower);
  const __nv_bfloat162 result = __hfma2(two, upper, __hmul2(two, lower));
  memcpy(&bits, &result, sizeof bits);
  return bits;
#endif
}

}  // namespace tutorial
