#pragma once
/// @file
/// The tensors of a problem of gradients, for over_devices/share_out.hpp.

#include "06_scan/over_devices/share_out.hpp"
#include "06_scan/over_devices_backward.hpp"

namespace tutorial::over_devices {

/// f(tensor, width) for each input with a row per position.
template <class F>
void for_each_input(const BackwardArguments& a, F f) {
  using A = BackwardArguments;
  f(&A::q, a.Dk), f(&A::k, a.Dk), f(&A::v, a.Dv), f(&A::g, 1), f(&A::beta, 1), f(&A::d_o, a.Dv);
}
/// The same for each output.
template <class F>
void for_each_output(const BackwardArguments& a, F f) {
  using A = BackwardArguments;
  f(&A::dq, a.Dk), f(&A::dk, a.Dk), f(&A::dv, a.Dv), f(&A::dg, 1), f(&A::dbeta, 1);
}
/// f(state, whether it belongs to the first device).
template <class F>
void for_each_state(const BackwardArguments& /*a*/, F f) {
  using A = BackwardArguments;
  f(&A::initial_state, true), f(&A::dfinal_state, false), f(&A::dinitial_state, true);
}

}  // namespace tutorial::over_devices
