#pragma once
/// @file
/// The emulator's <cuda_bf16.h>: __nv_bfloat16, the upper half of a float (1 sign, 8 exponent, 7 fraction bits), and
/// pairs of it, under CUDA's names and with CUDA's rounding (to nearest, ties to even; a NaN becomes 0x7fff).

#include <bit>
#include <cstdint>

#include "emulator/small_float.hpp"
#include "emulator/vector_types.hpp"

namespace emulator {

struct BFloat16Format {
  static constexpr std::uint16_t encode(float value) {
    if (value != value) return 0x7fff;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    // Just under half of what is cut off, and a whole half where the last bit that stays is odd. A carry out of the
    // fraction raises the exponent, up to infinity, as it should.
    const std::uint32_t rounding = 0x7fff + (bits >> 16 & 1);
    return static_cast<std::uint16_t>((bits + rounding) >> 16);
  }
  static constexpr float decode(std::uint16_t bits) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

}  // namespace emulator

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): the names are CUDA's
// clang-format off

using __nv_bfloat16 = emulator::SmallFloat<emulator::BFloat16Format>;
using __nv_bfloat162 = emulator::SmallFloatPair<emulator::BFloat16Format>;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

constexpr __nv_bfloat16 __float2bfloat16(float value) { return value; }
constexpr __nv_bfloat16 __float2bfloat16_rn(float value) { return value; }
constexpr __nv_bfloat16 __double2bfloat16(double value) { return value; }
constexpr float __bfloat162float(__nv_bfloat16 value) { return value; }
constexpr unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.bits(); }
constexpr __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return __nv_bfloat16::from_bits(bits); }

constexpr __nv_bfloat162 make_bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
constexpr __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y) { return {x, y}; }
constexpr __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 both) { return {both, both}; }
constexpr __nv_bfloat162 __float2bfloat162_rn(float both) { return {both, both}; }
constexpr __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
constexpr __nv_bfloat162 __float22bfloat162_rn(float2 value) { return {value.x, value.y}; }
constexpr float2 __bfloat1622float2(__nv_bfloat162 value) { return {value.x, value.y}; }
constexpr float __low2float(__nv_bfloat162 value) { return value.x; }
constexpr float __high2float(__nv_bfloat162 value) { return value.y; }
constexpr __nv_bfloat16 __low2bfloat16(__nv_bfloat162 value) { return value.x; }
constexpr __nv_bfloat16 __high2bfloat16(__nv_bfloat162 value) { return value.y; }

// clang-format on
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
