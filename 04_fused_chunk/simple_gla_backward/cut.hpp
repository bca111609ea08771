#pragma once
/// @file
/// How `hopper_gradients` cuts its walks: the sequence into segments, and each walk into runs of segments, one per block.

#include <string>

#include "04_fused_chunk/simple_gla_backward.hpp"
#include "common/ceil_div.hpp"
#include "common/tile/launch_plan.hpp"

namespace tutorial::simple_gla {

/// The segments and the runs of the walks.
struct Cut {
  tile::LaunchPlan plan;  ///< the segments
  int each;               ///< segments of a run
  bool are_given;         ///< kernels before the walks compute the states at all borders, so that no run waits
  /// Walks that are not cut. All others are cut into runs(), and only the last walks are.
  int whole = 0;
  int early = 0;  ///< whole walks whose numbers come before the first runs; those of the others come behind these

  /// The number of runs of a walk that is cut.
  int runs() const { return ceil_div(plan.segments, each); }
  /// The cut as text for the report.
  std::string note() const {
    const auto count = [](int n, const char* what) { return std::to_string(n) + what + (n == 1 ? "" : "s"); };
    return count(plan.segments, " segment") + " in " + count(runs(), " run") + (are_given ? ", states first" : "") +
           (whole > 0 ? ", " + count(whole, " walk") + " whole" : "");
  }
};

/// Walks in at most this number of runs, with at least as many segments as `segments` and `pipelined` have.
Cut cut_into(const Bf16BackwardArguments&, int runs, bool are_given);
/// If at most half of the multiprocessors have a walk more than the others: that many walks in two runs, one at the
/// beginning and one at the end, and all others whole. Otherwise the walks in one run.
Cut cut_the_rest(const Bf16BackwardArguments&);
/// The time of all kernels with this cut, in microseconds.
double estimated_time(const Bf16BackwardArguments&, const Cut&);
/// The cut with the least estimated time.
Cut fastest_cut(const Bf16BackwardArguments&);

/// Starts the kernels of `hopper_gradients`. Requires: an empty hopper_gradients_backward_unsupported().
/// @throws CudaError if memory runs out or a launch is refused
void walk_in_runs(const Bf16BackwardArguments&, const Cut&);

}  // namespace tutorial::simple_gla
