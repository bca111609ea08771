#pragma once
/// @file
/// The element types of tensors, in memory and in files.

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutorial {

enum class Dtype { fp32, fp64, bf16, fp16, int32, int64 };

/// Bytes of one element. std::logic_error for a number that is no Dtype, as in name_of().
std::size_t size_of(Dtype dtype);

/// "fp32", "bf16", ...: as tables and reports write it.
std::string_view name_of(Dtype dtype);

/// The Dtype of a C++ type; specialised for the types of this project that stand for one. The CUDA types of bf16 and
/// fp16 are added by chapter/call.hpp, so that this header needs no other.
template <class T>
struct DtypeOf;
/// The tensor type of these numbers.
template <>
struct DtypeOf<float> {
  static constexpr Dtype value = Dtype::fp32;
};
/// The tensor type of these numbers.
template <>
struct DtypeOf<double> {
  static constexpr Dtype value = Dtype::fp64;
};
/// The tensor type of these numbers.
template <>
struct DtypeOf<std::int32_t> {
  static constexpr Dtype value = Dtype::int32;
};
/// The tensor type of these numbers.
template <>
struct DtypeOf<std::int64_t> {
  static constexpr Dtype value = Dtype::int64;
};

}  // namespace tutorial
