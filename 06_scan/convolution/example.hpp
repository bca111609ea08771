#pragma once
/// @file
/// `--example`: a convolution of four numbers, by the stages direct, fft and scan.

#include "common/chapter/demonstration.hpp"

namespace tutorial::convolution {

/// Four numbers through the three ways, and whether they agree.
Demonstration worked_example();

}  // namespace tutorial::convolution
