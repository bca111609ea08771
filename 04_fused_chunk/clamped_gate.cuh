#pragma once
/// @file
/// Running sums of the logarithms of gates in fp32, without losing a gate near 1 behind one near 0.
///
/// Logarithms are to base 2 here. A gate near 1 lets most of the state pass and has a logarithm near 0. A gate near 0
/// lets almost nothing pass and has a large negative logarithm. Neighbouring fp32 numbers around -1e4 are 1e-3 apart,
/// so a sum that contains a gate of 2^-10000 has no digits left for the gates near 1 after it. Therefore a gate is
/// taken as at least 2^-127. That changes no gate which is a normal number of fp32: those are 2^-126 or more, and ex2()
/// makes 0 of 2^-127. A gate that is 0 in fp32 stays 0, and every other keeps its size.

#include <cuda_runtime.h>

#include "common/tile/base2.cuh"

namespace tutorial {

/// The logarithm to base 2 of the gate exp(g), or of 2^-127 if that is larger.
__device__ __forceinline__ float clamped_base2(float g) {
  return max(tile::base2(g), -127.0f);
}

}  // namespace tutorial
