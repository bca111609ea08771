#pragma once
/// @file
/// What each device holds of a problem of gradients.

#include "06_scan/over_devices_backward.hpp"

namespace tutorial::over_devices {

/// The part of device n that the last share_out() has made, as share_of() of the outputs. The first device has the
/// initial state and its gradient, the last one the gradient of the final state.
const BackwardArguments& gradient_share_of(int n);

}  // namespace tutorial::over_devices
