#pragma once
/// @file
/// Bits and integers under CUDA's names: counting and reversing bits, reading a float's bits, converting between floats
/// and integers.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace emulator {

/// A rounded float as an integer the way a GPU converts: out-of-range values become the nearest limit, NaN becomes 0.
template <class Integer>
Integer saturated(float rounded) {
  using Roofline = std::numeric_limits<Integer>;
  constexpr auto end = static_cast<float>(Roofline::max() / 2 + 1) * 2.0f;  // the first power of two that does not fit
  if (rounded != rounded) return 0;
  if (rounded < static_cast<float>(Roofline::min())) return Roofline::min();
  if (rounded >= end) return Roofline::max();
  return static_cast<Integer>(rounded);
}

/// The bits in reverse.
template <class Unsigned>
constexpr Unsigned reversed(Unsigned value) {
  Unsigned result = 0;
  for (int bit = 0; bit < std::numeric_limits<Unsigned>::digits; ++bit, value >>= 1) result = result << 1 | (value & 1);
  return result;
}

}  // namespace emulator

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): the names are CUDA's
// clang-format off

// Bits that are set; leading zeros, all of them where x is 0.
constexpr int __popc(unsigned x) { return std::popcount(x); }
constexpr int __popcll(unsigned long long x) { return std::popcount(x); }
constexpr int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
constexpr int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
/// The position of the lowest set bit counted from 1; 0 if there is none.
constexpr int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
constexpr int __ffsll(long long x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1; }
// The bits in reverse.
constexpr unsigned __brev(unsigned x) { return emulator::reversed(x); }
constexpr unsigned long long __brevll(unsigned long long x) { return emulator::reversed(x); }
/// The upper 32 bits of a product.
constexpr unsigned __umulhi(unsigned x, unsigned y) { return static_cast<unsigned>(std::uint64_t{x} * y >> 32); }
constexpr int __mulhi(int x, int y) { return static_cast<int>(std::int64_t{x} * y >> 32); }

// The same bits as a number of the other type.
constexpr unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
constexpr int __float_as_int(float x) { return std::bit_cast<int>(x); }
constexpr float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
constexpr float __int_as_float(int x) { return std::bit_cast<float>(x); }
constexpr long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
constexpr double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

// Rounded to nearest even (rn), towards zero (rz), up (ru), down (rd).
inline int __float2int_rn(float x) { return emulator::saturated<int>(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return emulator::saturated<int>(std::trunc(x)); }
inline int __float2int_ru(float x) { return emulator::saturated<int>(std::ceil(x)); }
inline int __float2int_rd(float x) { return emulator::saturated<int>(std::floor(x)); }
inline unsigned __float2uint_rn(float x) { return emulator::saturated<unsigned>(std::nearbyint(x)); }
inline unsigned __float2uint_rz(float x) { return emulator::saturated<unsigned>(std::trunc(x)); }
constexpr float __int2float_rn(int x) { return static_cast<float>(x); }
constexpr float __uint2float_rn(unsigned x) { return static_cast<float>(x); }

// clang-format on
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
