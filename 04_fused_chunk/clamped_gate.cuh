#pragma once
/// @file
/// Running sums of the logarithms of gates in fp32, without losing a gate near 1 behind one near 0.
///
/// Logarithms are to base 2 here. A gate near 1 lets most of the state pass and has a logarithm near 0. A gate near 0
/// lets almost nothing pass and has a large negative logarithm. Neighbouring fp32 numbers around -1e4 are 1e-3 apart,
/// so a sum that contains a gate of 2^-10000 has no digits left for the gates near 1 after it. Therefore a gate is
/// taken as at least 2^-40. bf16 keeps 8 bits, so adding 2^-40 to 1 changes nothing. The limit matters only if 2^-40 of
/// the state is not negligible beside the k^T v that come after the gate: if the state is 2^40 / 2^8 = 2^32 times as
/// large as they are, as an initial state of 1e12 would be.

#include <cuda_runtime.h>

#include "common/tile/base2.cuh"

namespace tutorial {

/// The logarithm to base 2 of the gate exp(g), or of 2^-40 if that is larger.
__device__ __forceinline__ float clamped_base2(float g) {
  return max(tile::base2(g), -40.0f);
}

}  // namespace tutorial
