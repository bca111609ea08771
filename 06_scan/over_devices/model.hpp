#pragma once
/// @file
/// `--model`: the time of the stages over N devices, for more devices and longer sequences than can be had. It is
/// computed from measured times of one device and of one link; docs/notebook/06_over_devices.md has the
/// assumptions. Times are in milliseconds, for bf16, B = 1, H = 8, Dk = Dv = 128.

#include "06_scan/over_devices.hpp"
#include "common/chapter/demonstration.hpp"

namespace tutorial::over_devices {

/// One pass of a device over so many positions.
double pass_ms(Rule rule, double positions);
/// A message of so many bytes from one device to another.
double message_ms(double bytes);
/// The stage `relay` over L positions on N devices.
double relay_ms(Rule rule, double N, double L);
/// The stage `all_gather`.
double all_gather_ms(Rule rule, double N, double L);
/// The stage `states_alone`, which the delta rule does not have.
double states_alone_ms(Rule rule, double N, double L);
/// The stage `head_by_head`.
double head_by_head_ms(Rule rule, double N, double L);

/// Tables of these stages for N from 1 to 1024 and L from 2^16 to 2^30.
Demonstration model();

}  // namespace tutorial::over_devices
