/// @file
/// The bytes that the kernels of each GPU stage read from global memory or write to it. The test compares them with the
/// bytes that the emulator counts.

#include "05_deltanet_wy/delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/gated_delta_rule/dispatch/segmented_walk.hpp"
#include "05_deltanet_wy/gated_delta_rule/prepared.hpp"
#include "05_deltanet_wy/gated_delta_rule/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/tile/requirements.hpp"

namespace tutorial::gated_delta_rule {

std::int64_t recurrent_gpu_bytes_moved(const FloatArguments& a) {
  const std::int64_t gates = 4 * std::int64_t(a.B) * a.H * a.L * ceil_div(a.Dv, 32);  // once per tile of columns
  return delta_rule::recurrent_gpu_bytes_moved(a) + gates;
}

std::int64_t tensor_core_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, gates = 4 * heads * a.L;
  const std::int64_t decays = 4 * kDecays * heads * ceil_div(a.L, 64);
  // prepare() writes decays in place of the keys' factors, and the walk reads them once per tile of 64 columns.
  const std::int64_t factors = 4 * 64 * heads * ceil_div(a.L, 64);
  return delta_rule::fused_bytes_moved(a) + gates + decays - factors + ceil_div(a.Dv, 64) * decays;
}

std::int64_t warpgroup_chain_bytes_moved(const Bf16Arguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, decays = 4 * kDecays * heads * ceil_div(a.L, 64);
  return delta_rule::warpgroup_chain_bytes_moved(a) + 4 * heads * a.L + (1 + ceil_div(a.Dv, 64)) * decays;
}

std::int64_t walk_segments_bytes_moved(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, count = plan.segments - 1, decays = 4 * kDecays;
  std::int64_t added = warpgroup_chain_bytes_moved(a) - delta_rule::warpgroup_chain_bytes_moved(a);
  if (count > 0) {  // the decays of chunks once per block of kernel 1; those of segments
    const std::int64_t values = ceil_div(a.Dv, 128), chunks = plan.length / 64;
    added += heads * ((count * values + count - 1) * chunks * decays + (count - 1) * 4);
    added += heads * ceil_div(a.Dv, 64) * (count - 1) * 4 * 128;  // each thread loads a segment's decay
  }
  return delta_rule::walk_segments_bytes_moved(a, plan) + added;
}

std::int64_t segments_bytes_moved(const Bf16Arguments& a) {
  return walk_segments_bytes_moved(a, delta_rule::one_wave_of_segments(a));
}

std::int64_t cluster_bytes_moved(const Bf16Arguments& a) {
  // Once per 128 columns, in each of the four warps that compute a chunk's T and P.
  const std::int64_t gates = 4 * 4 * std::int64_t(a.B) * a.H * a.L;
  return delta_rule::cluster_bytes_moved(a) + ceil_div(a.Dv, 128) * gates;
}

std::int64_t segmented_walk_bytes_moved(const Bf16Arguments& a, const tile::LaunchPlan& plan) {
  const std::int64_t heads = std::int64_t(a.B) * a.H, gates = 4 * heads * a.L, count = plan.segments - 1;
  // prepare() writes decays in place of the keys' factors.
  std::int64_t added = gates + 4 * (kDecays - 64) * heads * ceil_div(a.L, 64);
  // The decays of segments are written once. Each thread that carries rows loads them.
  if (count > 1) added += heads * (count - 1) * 4 * (1 + std::int64_t(a.Dv) / 16 * 2 * a.Dk);
  return delta_rule::segmented_walk_bytes_moved(a, plan, kDecays) + added;
}

std::int64_t dispatch_bytes_moved(const Bf16Arguments& a) {
  if (warpgroup_chain_unsupported(a).empty()) {
    const bool is_cut = fastest_walk(a) == delta_rule::Walk::segments;
    return is_cut ? walk_segments_bytes_moved(a, delta_rule::fastest_segments(a)) : cluster_bytes_moved(a);
  }
  if (!tile::tensor_core_unsupported(a).empty()) return -1;
  const auto plan = segmented_plan(a);
  return plan ? segmented_walk_bytes_moved(a, *plan) : tensor_core_bytes_moved(a);
}

}  // namespace tutorial::gated_delta_rule
