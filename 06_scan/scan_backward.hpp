#pragma once
/// @file
/// The adjoint of the operator `scan`, as `--backward` computes it, and one declaration per stage. For the gradient dy of
/// y:
///
///     dx_t = dy_t + exp(g_{t+1}) dx_{t+1},    dg_t = exp(g_t) dx_t y_{t-1},    dinitial_state = exp(g_1) dx_1
///
/// where dg_t is summed over the channels if Dg = 1. Memory, errors and requirements are as in scan.hpp.

#include "common/view.hpp"

namespace tutorial::scan {

/// The operator's inputs, the gradient of y, and the gradients of the inputs.
struct BackwardArguments {
  int B, H, L, D;
  int Dg;                           ///< 1 or D
  View<const float> x;              ///< [B, H, L, D]
  View<const float> log_decay;      ///< [B, H, L, Dg]
  View<const float> initial_state;  ///< [B, H, D]; data is null if y_0 = 0
  View<const float> dy;             ///< [B, H, L, D]
  View<float> dx;                   ///< [B, H, L, D]
  View<float> dlog_decay;           ///< [B, H, L, Dg]
  View<float> dinitial_state;       ///< [B, H, D]; data is null if it is not wanted

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

/// CPU, double: what the others are checked against.
void sequential_backward(const BackwardArguments&);
/// GPU: the loop twice, the second time from the end.
void sequential_gpu_backward(const BackwardArguments&);
/// GPU: what a user calls.
void dispatch_backward(const BackwardArguments&);

}  // namespace tutorial::scan
