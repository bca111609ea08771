#pragma once
/// @file
/// Two 16-bit numbers in one register, as mma and ldmatrix want them.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tutorial {

/// Two numbers rounded to Elements (to nearest even), `low` in the lower half of the register.
/// @tparam Element __nv_bfloat16 or __half
template <class Element = __nv_bfloat16>
__device__ __forceinline__ std::uint32_t pack(float low, float high) {
  std::uint32_t bits;
  if constexpr (std::is_same_v<Element, __half>) {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&bits, &pair, sizeof bits);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &pair, sizeof bits);
  }
  return bits;
}

/// The two numbers of a register: the lower half in x, the upper half in y.
/// @tparam Element __nv_bfloat16 or __half
template <class Element = __nv_bfloat16>
__device__ __forceinline__ float2 unpack(std::uint32_t bits) {
  if constexpr (std::is_same_v<Element, __half>) {
    __half2 pair;
    memcpy(&pair, &bits, sizeof bits);
    return __half22float2(pair);
  } else {
    // bf16 is the upper half of an fp32. (Of __bfloat1622float2() the compiler makes three instructions.)
    const std::uint32_t low = bits << 16, high = bits & 0xFFFF0000u;
    float2 two;
    memcpy(&two.x, &low, sizeof low);
    memcpy(&two.y, &high, sizeof high);
    return two;
  }
}

/// Both numbers of a register, each times its factor and rounded again.
__device__ __forceinline__ std::uint32_t scaled(std::uint32_t bits, float2 factors) {
  const float2 two = unpack(bits);
  return pack(factors.x * two.x, factors.y * two.y);
}

}  // namespace tutorial
