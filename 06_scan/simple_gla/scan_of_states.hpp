#pragma once
/// @file
/// The states of tiles as a problem of the operator scan: Dk Dv channels that share a gate.

#include "06_scan/scan.hpp"
#include "06_scan/simple_gla/state_plan.hpp"

namespace tutorial::scan {

/// S_n = exp(g_n) S_{n-1} + X_n.
/// @param X, S [B, H, tiles, state_size()], in the order in which threads hold a state @param g of the tiles
inline Arguments scan_of_states(const simple_gla::FloatArguments& a, const StatePlan& plan, float* X,
                                const View<const float>& g, float* S) {
  Arguments scan{};
  scan.B = a.B, scan.H = a.H, scan.L = int(plan.tiles), scan.D = plan.state_size(), scan.Dg = 1;
  scan.x = packed<const float>(X, a.H, plan.tiles, plan.state_size());
  scan.log_decay = g;
  scan.y = packed(S, a.H, plan.tiles, plan.state_size());
  return scan;
}

}  // namespace tutorial::scan
