#include "common/small_float.hpp"

#include <bit>
#include <cmath>

namespace tutorial {

float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(bits >> 16 | 0x40u);  // the payload's upper bits, made quiet
  }
  // Half a unit of the last place that stays, less one where that place is even: then a tie rounds down.
  const std::uint32_t round = 0x7FFFu + (bits >> 16 & 1u);
  return static_cast<std::uint16_t>((bits + round) >> 16);  // the carry may reach the exponent, and infinity: right
}

float float_from_fp16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1Fu;
  const std::uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(std::ldexp(static_cast<float>(fraction), -24)));
  }
  if (exponent == 31) {  // infinity or NaN
    return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
  }
  return std::bit_cast<float>(sign | (exponent + (127 - 15)) << 23 | fraction << 13);
}

std::uint16_t fp16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<std::uint16_t>(sign | 0x7E00u | (magnitude >> 13 & 0x3FFu));
  }
  if (magnitude >= 0x47800000u) {  // 2^16 and above
    return sign | 0x7C00u;
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: a subnormal, a whole multiple of 2^-24
    const float units = std::ldexp(std::bit_cast<float>(magnitude), 24);
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(units)));
  }
  const std::uint32_t rebiased = magnitude - ((127u - 15u) << 23);
  const std::uint32_t round = 0xFFFu + (rebiased >> 13 & 1u);
  return static_cast<std::uint16_t>(sign | (rebiased + round) >> 13);
}

}  // namespace tutorial
