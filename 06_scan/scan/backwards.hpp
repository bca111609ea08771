#pragma once
/// @file
/// The adjoint as two calls of the operator: dx is a scan of dy from the end, with each step's gate taken from the step
/// after it. A view whose stride over time is negative reads a sequence from its end, so the same kernels compute it.

#include "06_scan/scan.hpp"
#include "06_scan/scan_backward.hpp"

namespace tutorial::scan {

/// The call that computes y again from the inputs, into `y` [B, H, L, D].
inline Arguments forwards(const BackwardArguments& a, View<float> y) {
  return {a.B, a.H, a.L, a.D, a.Dg, a.x, a.log_decay, a.initial_state, y, /*final_state=*/{}, /*final_log_decay=*/{}};
}

/// dx_t = exp(g_{t+1}) dx_{t+1} + dy_t for t = L, ..., 1. Its first step, t = L, would have the gate g_{L+1}.
inline Arguments backwards(const BackwardArguments& a) {
  const auto from_end = [](auto view, std::int64_t last) {
    view.data += last * view.stride_l;
    view.stride_l = -view.stride_l;
    return view;
  };
  return {a.B,
          a.H,
          a.L,
          a.D,
          a.Dg,
          from_end(a.dy, a.L - 1),
          from_end(a.log_decay, a.L),
          /*initial_state=*/{},
          from_end(a.dx, a.L - 1),
          /*final_state=*/{},
          /*final_log_decay=*/{},
          /*has_first_gate=*/false};
}

}  // namespace tutorial::scan
