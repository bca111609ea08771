/// @file
/// What the gradients' stages require of a problem, the memory that they take, and what they choose.

#include "04_fused_chunk/simple_gla_backward/requirements.hpp"
#include "common/tile/requirements.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/chained_runs.cuh"
#include "04_fused_chunk/simple_gla_backward/cut.hpp"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "04_fused_chunk/simple_gla_backward/segment_plan.hpp"
#include "common/ceil_div.hpp"
#include "common/parallel.hpp"

namespace tutorial::simple_gla {

// For some gradients the widths of keys and values change places.
std::string walks_backward_unsupported(const Bf16BackwardArguments& b) {
  if (b.Dv > 256) return "Dv > 256: as keys of dq and dk, whose state would not fit into a block's registers";
  for (const Gradient& gradient : gradients_of(b)) {
    if (const std::string reason = tile::tensor_core_unsupported(gradient.a); !reason.empty()) return reason;
  }
  return "";
}

std::string hopper_gradients_backward_unsupported(const Bf16BackwardArguments& b) {
  constexpr int kMostHeads = 1 << 20;  // of at most six walks, in fewer than 300 runs
  if (const std::string reason = walks_backward_unsupported(b); !reason.empty()) return reason;
  for (const Gradient& gradient : gradients_of(b)) {
    if (const std::string reason = specialized_unsupported(gradient.a); !reason.empty()) return reason;
  }
  if (std::int64_t(b.B) * b.H > kMostHeads) return "B H > 2^20: blocks are counted in int";
  return "";
}

std::int64_t reference_backward_memory(const FloatBackwardArguments& a) {
  const std::int64_t states = ceil_div(a.L, 64) + std::min(a.L, 64) + 2;
  return std::int64_t(sizeof(double)) * states * a.Dk * a.Dv * processor_count();
}

std::int64_t recurrent_backward_memory(const FloatBackwardArguments& a) {
  return (4 * std::int64_t(a.Dk) * a.Dv + 8 * std::int64_t(a.L)) * processor_count();
}

std::int64_t chunkwise_backward_memory(const FloatBackwardArguments& a) {
  const std::int64_t C = std::min(a.C, a.L);
  return (4 * (std::int64_t(a.Dk) * a.Dv + C * C + C * std::max(a.Dk, a.Dv)) + 8 * std::int64_t(a.L)) *
         processor_count();
}

std::int64_t walks_backward_memory(const Bf16BackwardArguments& b) {
  const std::int64_t parts = std::int64_t(b.B) * b.H * ceil_div(b.Dk, 64) * tile::kWarps;
  return std::int64_t(sizeof(float)) * (RowProducts::elements(b) + parts);
}

std::int64_t segments_memory(const Bf16BackwardArguments& b, const tile::LaunchPlan& plan) {
  const std::int64_t heads = std::int64_t(b.B) * b.H, parts = heads * ceil_div(b.Dk, 64) * tile::kWarps;
  return 2 * tile::launch_plan_memory(tile::extents_of(b), plan) +
         std::int64_t(sizeof(float)) * (RowProducts::elements(b) + parts + 2 * heads * (plan.segments - 1));
}

std::int64_t segments_backward_memory(const Bf16BackwardArguments& b) {
  return segments_memory(b, plan_of(b));
}

std::int64_t hopper_gradients_backward_memory(const Bf16BackwardArguments& b) {
  const Cut cut = fastest_cut(b);
  const std::int64_t words = Runs{cut}.words(std::int64_t(b.B) * b.H);
  return segments_memory(b, cut.plan) + std::int64_t(sizeof(unsigned)) * words;
}

std::string segments_backward_note(const Bf16BackwardArguments& b) {
  const int segments = plan_of(b).segments;
  return std::to_string(segments) + (segments == 1 ? " segment" : " segments");
}

std::string hopper_gradients_backward_note(const Bf16BackwardArguments& b) {
  return fastest_cut(b).note();
}

}  // namespace tutorial::simple_gla
