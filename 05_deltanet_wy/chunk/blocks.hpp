#pragma once
/// @file
/// A chunk's lower triangular matrices [64, 64] in blocks of 16 x 16.

#include <cuda_runtime.h>

namespace tutorial::delta_rule {

inline constexpr int kBlock = 16;                                 ///< rows and columns of a block
inline constexpr int kBlocks = 4;                                 ///< of a chunk of 64, in a row
inline constexpr int kLowerBlocks = kBlocks * (kBlocks + 1) / 2;  ///< on and below the diagonal

/// The number of block (r, c), c <= r, among those.
__host__ __device__ constexpr int lower_block(int r, int c) {
  return r * (r + 1) / 2 + c;
}

}  // namespace tutorial::delta_rule
