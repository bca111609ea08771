#pragma once
/// @file
/// What prepare() of an operator with gates leaves for the gradients, beside what the operator itself needs.

#include <cuda_runtime.h>

namespace tutorial::delta_rule {

/// Null pointers: not wanted.
struct ForGradients {
  float least_beta = 0;      ///< in the place of every beta below it
  float* factors = nullptr;  ///< where the keys' factors go, [B, H, 64 N]
  /// where T rounded, its rounding error and P go once more, [B, H, N, 3, 10, 32]: as the B fragments of the blocks
  /// themselves, which a walk from the end multiplies by
  uint4* blocks = nullptr;
  float* bounds = nullptr;  ///< where the bounds of chunks go (zero_starts.cuh), [B, H, N], with one gate per position
};

}  // namespace tutorial::delta_rule
