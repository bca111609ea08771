#pragma once
/// @file
/// How far a result is from what it should be.

#include <string>

#include "common/tensor.hpp"

namespace tutorial {

/// The distance between two tensors of one shape.
struct Comparison {
  /// |out - reference|_F / |reference|_F in double; |out|_F where the reference is zero; NaN where a value is not
  /// finite, be it computed or never written, unless the reference is the same infinity. |reference|_F counts as at
  /// least that of as many smallest normal numbers of fp32, 1.2e-38. Another size may stand for |reference|_F: see
  /// compare().
  double error = 0;
  Shape worst;             ///< index of the first non-finite value, else of the largest deviation
  double value = 0;        ///< out[worst]
  double expected = 0;     ///< reference[worst]
  bool unwritten = false;  ///< out[worst] still holds the poison: all bits set, or the bf16 of that as fp32

  bool within(double tolerance) const { return error <= tolerance; }  ///< false for NaN
};

/// Compares two fp32 tensors. std::logic_error where their shapes differ, or one is of another type.
/// @param subtracted where the reference is what two terms leave that may cancel: the second of them. Then the error is
/// relative to (|reference|_F^2 + |subtracted|_F^2)^(1/2).
Comparison compare(const Tensor& out, const Tensor& reference, const Tensor* subtracted = nullptr);

/// "o[0, 1, 17, 3] is 0.25, not 0.5", "o[0, 1, 17, 3] is nan, not 0.5" or "o[0, 1, 17, 3] was never written".
std::string describe(const Comparison& comparison, const std::string& name);

}  // namespace tutorial
