#pragma once
/// @file
/// What each device holds of a problem: a run of its positions, in memory of that device.

#include <cstddef>
#include <cstdint>

#include "06_scan/over_devices.hpp"

namespace tutorial::over_devices {

/// A run of positions.
struct Positions {
  int first, count;
};

/// Those of device n: L / N of them, rounded up or down so that together they are L. None is empty if N <= L.
inline Positions positions_of(int n, int N, int L) {
  const auto first = [&](int device) { return int(std::int64_t(L) * device / N); };
  return {first(n), first(n + 1) - first(n)};
}

/// The part of device n that the last share_out() has made: its L is its number of positions, its tensors are in memory
/// of that device, in rows as far apart as those of the problem. The first device has the initial state and the last
/// one the final state. What is not given or wanted is null there as well.
const Arguments& share_of(int n);

/// Heads of all batch entries.
template <class Arguments>
std::size_t heads(const Arguments& a) {
  return std::size_t(a.B) * a.H;
}

/// Floats of the states of all heads.
template <class Arguments>
std::size_t state_size(const Arguments& a) {
  return heads(a) * a.Dk * a.Dv;
}

/// The sizes of the longest share.
template <class Arguments>
Arguments longest_share(Arguments a) {
  a.L = positions_of(a.N - 1, a.N, a.L).count;
  return a;
}

}  // namespace tutorial::over_devices
