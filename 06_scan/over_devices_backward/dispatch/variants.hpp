#pragma once
/// @file
/// The variants of the gradients over several devices.

#include "06_scan/over_devices_backward.hpp"

namespace tutorial::over_devices {

/// GPUs: the state goes from device to device, then its gradient comes back.
template <Rule kRule>
void relay_backward(const BackwardArguments&);
/// GPUs: `all_gather`, the first passes without outputs and without gradients. Not for the delta rule.
template <Rule kRule>
void states_alone_backward(const BackwardArguments&);

}  // namespace tutorial::over_devices
