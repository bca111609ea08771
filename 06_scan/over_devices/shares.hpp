#pragma once
/// @file
/// What each device holds of a problem: a run of its positions, in memory of that device.

#include "06_scan/over_devices.hpp"

namespace tutorial::over_devices {

/// A run of positions.
struct Positions {
  int first, count;
};

/// Those of device n: L / N of them, rounded up or down so that together they are L. None is empty if N <= L.
Positions positions_of(int n, int N, int L);

/// The part of device n that share_out() has made: its L is its number of positions, its tensors are packed in memory
/// of that device. The first device has the initial state, the last has the final state if that is wanted.
const Arguments& share_of(int n);

}  // namespace tutorial::over_devices
