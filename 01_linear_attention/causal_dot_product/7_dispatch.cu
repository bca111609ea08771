/// @file
/// Stage 7, `dispatch`: what a user calls. No new kernel, a choice among three.
///
/// Mends: each of the stages 4 to 6 is the right one for some problems only. Same: their kernels, shapes and bytes.
/// The choice follows from what each kernel runs out of.
/// - lmha (5) walks the L steps one after the other, however few heads there are: its time is L steps of its
/// slowest block. A step can be made shorter. While multiprocessors are idle, the columns of a head are spread over
/// several blocks, of at least 32 columns. And where Dk <= 64 two threads share a column instead of one: a warp
/// then has half the reads and half the multiply-adds of a step, and the other half goes to a scheduler that had no
/// warp.
/// - lmha_low_occupancy (6) shares the steps out as well, but reads q and k once for every column: its time grows
/// with B H Dv, and is less than a walk of lmha only while that is small against the number of multiprocessors.
/// - atomic (4) takes any Dk, and is left for Dk > 256, which 5 and 6 cannot hold in registers. Stage 5's bound on
/// Dv is no obstacle here: the columns go to several blocks.
/// So: 6 where B H Dv is at most kColumnsPerMultiprocessor times the multiprocessors, else 5, else 4. The factor is
/// where the two kernels' measured times cross (README.md has the measurement); the number of multiprocessors is
/// this GPU's.
/// Limit and needs: those of the kernel it picks.
/// Weakness: the factor was measured on one GPU at two widths; and the best of the three is still bound by one step
/// following the other, which chapter 02 changes.

#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "01_linear_attention/linear_attention.hpp"
#include "common/device/device.hpp"

namespace tutorial::causal_dot_product {
namespace {

/// Up to so many value columns of all heads a multiprocessor, stage 6 is faster than stage 5.
constexpr int kColumnsPerMultiprocessor = 8;

struct Choice {
  enum { kAtomic, kLmha, kLmhaLowOccupancy } kernel;
  Spread spread;
};

Choice choose(const Arguments& a) {
  const int multiprocessors = multiprocessor_count();
  const std::int64_t heads = std::int64_t(a.B) * a.H;
  if (lmha_low_occupancy_limits(a).empty() &&
      heads * a.Dv <= std::int64_t(kColumnsPerMultiprocessor) * multiprocessors) {
    return {Choice::kLmhaLowOccupancy, {}};
  }
  if (a.Dk <= kLmhaMaxKeyDim) {
    // As many tiles as find an idle multiprocessor, of whole warps, and none wider than a block can be.
    const int fewest = (a.Dv - 1) / lmha_max_columns(a.Dk) + 1, most = (a.Dv - 1) / 32 + 1;
    const int wanted = int(std::clamp<std::int64_t>(multiprocessors / heads, fewest, most));
    const int columns = ((a.Dv - 1) / wanted / 32 + 1) * 32;
    return {Choice::kLmha, {(a.Dv - 1) / columns + 1, a.Dk <= 64 && columns <= 64}};
  }
  return {Choice::kAtomic, {}};
}

}  // namespace

void dispatch(const Arguments& a) {
  const Choice choice = choose(a);
  switch (choice.kernel) {
    case Choice::kLmhaLowOccupancy:
      return lmha_low_occupancy(a);
    case Choice::kLmha:
      return lmha(a, choice.spread);
    case Choice::kAtomic:
      return atomic(a);
  }
}

std::string dispatch_note(const Arguments& a) {
  const Choice choice = choose(a);
  switch (choice.kernel) {
    case Choice::kLmhaLowOccupancy:
      return "lmha_low_occupancy";
    case Choice::kLmha: {
      const int tiles = choice.spread.column_tiles;
      return "lmha, " + std::to_string(tiles) + (tiles == 1 ? " block" : " blocks") + " a head, " +
             (choice.spread.twice_the_threads ? "twice" : "once") + " the threads";
    }
    case Choice::kAtomic:
      return "atomic";
  }
  return "";
}

std::string dispatch_limits(const Arguments& a) {
  if (a.L > INT_MAX - 64) return "L > 2^31 - 65: positions are counted in int";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: the grid's first dimension";
  return a.Dk <= kLmhaMaxKeyDim ? "" : atomic_limits(a);
}

}  // namespace tutorial::causal_dot_product
