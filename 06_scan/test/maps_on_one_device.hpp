#pragma once
/// @file
/// The maps of several devices, all on one of them and without NCCL: what the kernels compute can be tested with a
/// single GPU.

#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices_backward.hpp"

namespace tutorial::over_devices {

/// What `all_gather` computes with a.N devices, on the current one.
template <Rule kRule>
void maps_of_passes(const Arguments& a);
/// What `states_alone` computes. Not for the delta rule.
template <Rule kRule>
void maps_of_segments(const Arguments& a);

// The same for the gradients.
template <Rule kRule>
void maps_of_passes_backward(const BackwardArguments& a);
template <Rule kRule>
void maps_of_segments_backward(const BackwardArguments& a);

}  // namespace tutorial::over_devices
