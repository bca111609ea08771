/// @file
/// `dispatch`: what a user calls. It chooses among `lmha_low_occupancy`, `atomic` and a wider `lmha`, dispatch/lmha.cu.
///
/// Idea: the choice follows from the resource that each kernel runs out of.
/// - lmha walks the L positions one after the other, however few heads there are. Its time is L times that of a
///   position in its slowest block, and dispatch/lmha.cu can shorten a position. While multiprocessors are idle, it
///   spreads the columns of a head over several blocks, of at least 32 columns each. For Dk <= 64, two threads share a
///   column instead of one.
/// - lmha_low_occupancy also distributes the positions, but reads q and k once for every column. Its time grows with
///   B H Dv, and is less than a walk of lmha only while B H Dv is small against the number of multiprocessors.
/// - atomic supports any Dk. It remains for Dk > 256, where the other two cannot keep the state in registers.
/// So dispatch uses lmha_low_occupancy where B H Dv is at most kColumnsPerMultiprocessor times the multiprocessors,
/// else lmha, else atomic. The factor is the point where the measured times of the two kernels cross
/// (docs/notebook/01_causal_dot_product.md has the measurement). The number of multiprocessors is that of the GPU at
/// hand.
/// Improves on: each of `atomic`, `lmha` and `lmha_low_occupancy` is the right kernel for some problems only, and
/// `lmha` supports neither Dk > 64 nor Dv > 128.
/// Unchanged: the equation, shapes and bytes of the kernel that it chooses.
/// Bound by: what bounds the kernel that it chooses.
/// Requires: Dv <= 1024 where Dk > 256.
/// Weakness: the factor was measured on one GPU at two widths. The best of the three kernels is still bound by
/// positions that follow one another, which chapter 02 changes.

#include <cuda_runtime.h>

#include <algorithm>
#include <climits>

#include "01_linear_attention/causal_dot_product/dispatch/lmha.hpp"
#include "01_linear_attention/causal_dot_product/dispatch/products.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::causal_dot_product {
namespace {

/// Up to this number of value columns per multiprocessor, over all heads, lmha_low_occupancy is faster than lmha.
constexpr int kColumnsPerMultiprocessor = 8;

struct Choice {
  enum { kAtomic, kLmha, kLmhaLowOccupancy } kernel;
  LmhaPlan plan;
};

/// The kernel and its plan for this number of products of the same sizes.
Choice choose(const Arguments& a, std::size_t products) {
  const int multiprocessors = multiprocessor_count();
  const std::int64_t heads = std::int64_t(a.B) * a.H * std::int64_t(products);
  if (lmha_low_occupancy_unsupported(a).empty() &&
      heads * a.Dv <= std::int64_t(kColumnsPerMultiprocessor) * multiprocessors) {
    return {Choice::kLmhaLowOccupancy, {}};
  }
  if (a.Dk <= kLmhaMaxKeyDim) {
    // As many blocks as there are idle multiprocessors. Each has whole warps, and none exceeds the widest block.
    const int fewest = ceil_div(a.Dv, lmha_max_columns(a.Dk)), most = ceil_div(a.Dv, 32);
    // Narrow blocks of several products spread evenly over the multiprocessors (the notebook has the measurement).
    const bool is_narrow =
        products > 1 && (heads <= multiprocessors || (a.Dk <= 64 && 2 * heads <= 3 * multiprocessors));
    const int wanted = int(std::clamp<std::int64_t>(is_narrow ? 4 : multiprocessors / heads, fewest, most));
    const int columns = ((a.Dv - 1) / wanted / 32 + 1) * 32;
    return {Choice::kLmha, {ceil_div(a.Dv, columns), a.Dk <= 64 && columns <= 64}};
  }
  return {Choice::kAtomic, {}};
}

}  // namespace

void dispatch(const Arguments& a) {
  dispatch_at_once({&a, 1});
}

void dispatch_at_once(std::span<const Arguments> products) {
  const Choice choice = choose(products.front(), products.size());
  if (choice.kernel == Choice::kLmha) return planned_lmha(products, choice.plan);
  for (const Arguments& a : products) choice.kernel == Choice::kAtomic ? atomic(a) : lmha_low_occupancy(a);
}

std::string dispatch_note(const Arguments& a) {
  return dispatch_at_once_note({&a, 1});
}

std::string dispatch_at_once_note(std::span<const Arguments> products) {
  const Choice choice = choose(products.front(), products.size());
  switch (choice.kernel) {
    case Choice::kLmhaLowOccupancy:
      return "lmha_low_occupancy";
    case Choice::kLmha: {
      const int blocks = choice.plan.blocks_per_head;
      return "lmha, " + std::to_string(blocks) + (blocks == 1 ? " block" : " blocks") + " per head" +
             (choice.plan.two_threads_per_column ? ", two threads per column" : "");
    }
    case Choice::kAtomic:
      return "atomic";
  }
  return "";
}

std::string dispatch_unsupported(const Arguments& a) {
  if (a.L > INT_MAX - 64) return "L > 2^31 - 65: positions are counted in int";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: the grid's first dimension";
  return a.Dk <= kLmhaMaxKeyDim ? "" : atomic_unsupported(a);
}

}  // namespace tutorial::causal_dot_product
