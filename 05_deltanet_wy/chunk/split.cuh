#pragma once
/// @file
/// A number as the sum of two bf16: products on tensor cores with 16 bits of a factor instead of 8.
///
/// bf16 keeps 8 bits of x. The rounding error is a number, too, and a second bf16 keeps 8 bits of it: x = high + low,
/// up to an error of 2^-17 of x. A product of two such sums is three products of bf16 matrices, added in fp32:
///
///     A B = A_high B_high + A_high B_low + A_low B_high          (A_low B_low is smaller than the error)

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/mma.cuh"
#include "common/device/pack.cuh"

namespace tutorial::delta_rule {

/// A fragment of a matrix as two fragments, of its high and of its low parts. @tparam kRegisters 4: of A; 2: of B
template <int kRegisters>
struct SplitFragment {
  std::uint32_t high[kRegisters], low[kRegisters];

  /// Register i holds the two neighbours (first, second).
  __device__ __forceinline__ void set(int i, float first, float second) {
    high[i] = pack(first, second);
    const float2 rounded = unpack(high[i]);
    low[i] = pack(first - rounded.x, second - rounded.y);
  }
};

/// D += A B, in three mma; all lanes of a warp call.
__device__ __forceinline__ void mma_split(float (&d)[4], const SplitFragment<4>& a, const SplitFragment<2>& b) {
  mma_m16n8k16(d, a.low, b.high);
  mma_m16n8k16(d, a.high, b.low);
  mma_m16n8k16(d, a.high, b.high);
}

}  // namespace tutorial::delta_rule
