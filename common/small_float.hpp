#pragma once
/// @file
/// The two 16-bit floating-point formats as bits, on the host and without CUDA's headers. To 16 bits: round to nearest,
/// ties to even; what is too large becomes infinity, every NaN a quiet one. From 16 bits: exact. No input is an error.

#include <cstdint>

namespace tutorial {

/// bf16: the upper half of an fp32, 8 bits of exponent and 7 of fraction.
float float_from_bf16(std::uint16_t bits);
/// Rounded to the nearest, to even where two are equally near.
std::uint16_t bf16_from_float(float value);

/// fp16 (IEEE 754-2008, binary16): 5 bits of exponent and 10 of fraction, subnormal numbers included.
float float_from_fp16(std::uint16_t bits);
/// Rounded to the nearest, to even where two are equally near.
std::uint16_t fp16_from_float(float value);

}  // namespace tutorial
