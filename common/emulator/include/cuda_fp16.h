#pragma once
/// @file
/// The emulator's <cuda_fp16.h>: __half, IEEE 754's binary16 (1 sign, 5 exponent, 10 fraction bits), and pairs of it,
/// under CUDA's names and with CUDA's rounding (to nearest, ties to even; a NaN becomes 0x7fff).

#include <bit>
#include <cstdint>

#include "emulator/small_float.hpp"
#include "emulator/vector_types.hpp"

namespace emulator {

struct HalfFormat {
  static constexpr std::uint16_t encode(float value) {
    if (value != value) return 0x7fff;
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
    const std::uint32_t magnitude = bits & 0x7fffffff;
    return sign | encode_magnitude(magnitude);
  }
  static constexpr float decode(std::uint16_t bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16;
    const std::uint32_t exponent = bits >> 10 & 0x1f;
    const std::uint32_t fraction = bits & 0x3ff;
    if (exponent == 0x1f) return std::bit_cast<float>(fraction ? 0x7fffffff : sign | 0x7f800000);
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | (exponent + kExponentOffset) << 23 | fraction << 13);
  }

 private:
  static constexpr std::uint32_t kExponentOffset = 127 - 15;  // between the biases of float and half

  static constexpr std::uint16_t encode_magnitude(std::uint32_t bits) {
    constexpr auto overflow = std::bit_cast<std::uint32_t>(65520.0f);  // halfway from the largest half to the next step
    constexpr auto smallest_normal = std::bit_cast<std::uint32_t>(0x1p-14f);
    if (bits >= overflow) return 0x7c00;  // infinity
    if (bits < smallest_normal) {
      // Subnormal halves are the multiples of 2^-24, and so are the floats from 0.5 to 1: adding 0.5 rounds to them.
      constexpr auto half = std::bit_cast<std::uint32_t>(0.5f);
      return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(std::bit_cast<float>(bits) + 0.5f) - half);
    }
    const std::uint32_t rounding = 0xfff + (bits >> 13 & 1);  // as for bfloat16
    return static_cast<std::uint16_t>((bits + rounding - (kExponentOffset << 23)) >> 13);
  }
};

}  // namespace emulator

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): the names are CUDA's
// clang-format off

using __half = emulator::SmallFloat<emulator::HalfFormat>;
using __half2 = emulator::SmallFloatPair<emulator::HalfFormat>;
using half = __half;
using half2 = __half2;

constexpr __half __float2half(float value) { return value; }
constexpr __half __float2half_rn(float value) { return value; }
constexpr __half __double2half(double value) { return value; }
constexpr float __half2float(__half value) { return value; }
constexpr unsigned short __half_as_ushort(__half value) { return value.bits(); }
constexpr __half __ushort_as_half(unsigned short bits) { return __half::from_bits(bits); }

constexpr __half2 make_half2(__half x, __half y) { return {x, y}; }
constexpr __half2 __halves2half2(__half x, __half y) { return {x, y}; }
constexpr __half2 __half2half2(__half both) { return {both, both}; }
constexpr __half2 __float2half2_rn(float both) { return {both, both}; }
constexpr __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
constexpr __half2 __float22half2_rn(float2 value) { return {value.x, value.y}; }
constexpr float2 __half22float2(__half2 value) { return {value.x, value.y}; }
constexpr float __low2float(__half2 value) { return value.x; }
constexpr float __high2float(__half2 value) { return value.y; }
constexpr __half __low2half(__half2 value) { return value.x; }
constexpr __half __high2half(__half2 value) { return value.y; }

// clang-format on
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
