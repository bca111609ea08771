#pragma once
/// @file
/// What each device holds of a problem: a run of its positions, in memory of that device.

#include <cstddef>

#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices_backward.hpp"

namespace tutorial::over_devices {

/// A run of positions.
struct Positions {
  int first, count;
};

/// Those of device n: L / N of them, rounded up or down so that together they are L. None is empty if N <= L.
Positions positions_of(int n, int N, int L);

/// The part of device n that the last share_out() has made: its L is its number of positions, its tensors are in memory
/// of that device, in rows as far apart as those of the problem. The first device has the initial state and the last
/// one the final state; of their gradients, too. What is not given or wanted is null there as well.
const Arguments& share_of(int n);
/// The same for the gradients.
const BackwardArguments& gradient_share_of(int n);

/// One of several parts of the heads, each of about as many: parts = a.H are single heads.
Arguments heads_of(Arguments a, int part, int parts);

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

/// Bytes of the largest share of a device: a rule's tensors and the states that may be among them.
template <Rule kRule>
std::int64_t share_memory(const Arguments& a);
/// The same for the gradients.
template <Rule kRule>
std::int64_t share_memory(const BackwardArguments& a);

}  // namespace tutorial::over_devices
