#pragma once
/// @file
/// `--example`: a convolution of four numbers, by the stages direct, fft and scan.

#include "common/chapter/demonstration.hpp"

namespace tutorial::convolution {

/// Four numbers through the three ways, and whether they agree to 1e-6. CudaError where the GPU fails.
Demonstration worked_example();

}  // namespace tutorial::convolution
