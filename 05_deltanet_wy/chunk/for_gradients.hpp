#pragma once
/// @file
/// What prepare() of an operator with gates leaves for the gradients, beside what the operator itself needs.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace tutorial::delta_rule {

/// Null pointers: not wanted.
struct ForGradients {
  float least_beta = 0;      ///< in the place of every beta below it
  float* factors = nullptr;  ///< where the keys' factors go, [B, H, 64 N]
  /// where T rounded, its rounding error and P go once more, [B, H, N, 3, 10, 32]: as the B fragments of the blocks
  /// themselves, which a walk from the end multiplies by
  uint4* blocks = nullptr;
  /// where what rounding leaves out goes in chunks that are marked (alike_keys.cuh), with a gate per row: of K-,
  /// [B, H, 64 N, Dk], and of P as it is in `blocks`, [B, H, N, 10, 32]. Null: no chunk is marked
  __nv_bfloat16* K_errors = nullptr;
  uint4* P_errors = nullptr;
  float* bounds = nullptr;  ///< where the bounds of chunks go (zero_starts.cuh), [B, H, N], with one gate per position
};

}  // namespace tutorial::delta_rule
