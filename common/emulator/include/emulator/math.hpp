#pragma once
/// @file
/// Device mathematics under CUDA's names. expf, exp2f, logf, fmaf, fmaxf and their like are those of the C library.
/// Functions that a GPU approximates (__expf, __logf, ...) are exact to rounding here, so a kernel's error on the
/// emulator is about the least that it can have on a GPU.

#include <math.h>  // in the global namespace, where CUDA has it

#include <concepts>
#include <type_traits>

namespace emulator {

/// Pairs that min and max take: two floating-point numbers, or two integers of the same width, signed or not. CUDA's
/// overloads leave all others ambiguous.
template <class A, class B>
concept SameKind = (std::floating_point<A> && std::floating_point<B>) ||
                   (std::integral<A> && std::integral<B> &&
                    std::same_as<std::make_signed_t<decltype(+A())>, std::make_signed_t<decltype(+B())>>);

}  // namespace emulator

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): the names are CUDA's

/// The smaller of two numbers; with a NaN, the other.
template <class A, class B>
requires emulator::SameKind<A, B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x < y || y != y ? x : y;
}

/// The larger of two numbers; with a NaN, the other.
template <class A, class B>
requires emulator::SameKind<A, B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  const T x = static_cast<T>(a), y = static_cast<T>(b);
  return x > y || y != y ? x : y;
}

// clang-format off

// 1 / sqrt(x), in the type of x.
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
/// x clamped to [0, 1]; a NaN becomes 0.
inline float __saturatef(float x) { return x > 0.0f ? fminf(x, 1.0f) : 0.0f; }

// Fast approximations on a GPU.
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return static_cast<float>(pow(10.0, x)); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }

// Rounded to nearest even, and never fused into a multiply-add: the volatile keeps this compiler from fusing, too.
inline float __fadd_rn(float x, float y) { const volatile float sum = x + y; return sum; }
inline float __fsub_rn(float x, float y) { const volatile float difference = x - y; return difference; }
inline float __fmul_rn(float x, float y) { const volatile float product = x * y; return product; }

// Rounded to nearest even.
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / sqrt(static_cast<double>(x))); }

// clang-format on
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)
