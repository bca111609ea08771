#pragma once
/// @file
/// The two halves of a device's gradients as problems of the state alone: k, v and gates from the start, q, do and
/// gates from the end.

#include "06_scan/over_devices.hpp"
#include "06_scan/over_devices_backward.hpp"
#include "06_scan/over_devices_backward/forward_part.hpp"

namespace tutorial::over_devices {

/// The view whose first row is the last one.
template <class T>
View<T> reversed(View<T> view, int rows) {
  if (view.data) view.data += (rows - 1) * view.stride_l;
  view.stride_l = -view.stride_l;
  return view;
}

/// k, v, gates and the initial state alone.
inline Arguments from_the_start(const BackwardArguments& a) {
  Arguments x = forward_sizes(a);
  x.k = a.k, x.v = a.v, x.g = a.g;
  x.initial_state = a.initial_state;
  return x;
}

/// The problem whose state at the end is the gradient of the state at the start, but for the scale and each position's
/// own gate: q for k, do for v, in reversed order.
inline Arguments from_the_end(const BackwardArguments& a) {
  Arguments x = forward_sizes(a);
  x.k = reversed(a.q, a.L), x.v = reversed(a.d_o, a.L), x.g = reversed(a.g, a.L);
  x.initial_state = a.dfinal_state;
  return x;
}

}  // namespace tutorial::over_devices
