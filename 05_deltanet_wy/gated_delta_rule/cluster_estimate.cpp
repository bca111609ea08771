#include <cmath>

#include "05_deltanet_wy/gated_delta_rule/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::gated_delta_rule {
namespace {

// Microseconds on an H200, and bytes per microsecond.
constexpr double kClusterChunk = 1.35;
constexpr double kFirstFactors = 7;    // T and P of the first chunk
constexpr double kPrepareLaunch = 8;   // the launch of prepare_tiles(), and the gap before the walk
constexpr double kNoEarlyStart = 2.5;  // what the two kernels for segments take longer than those of delta_rule
constexpr double kBytes = 3.95e6;

}  // namespace

bool cluster_is_faster(const Bf16Arguments& a) {
  if (!cluster_unsupported(a).empty()) return false;
  const double positions = double(a.B) * a.H * a.L;
  const std::int64_t blocks = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 128) * 2;
  const double chain = double(ceil_div(blocks, multiprocessor_count())) * ceil_div(a.L, 64) * kClusterChunk;
  const double bytes = positions * 4 * (a.Dk + a.Dv) / kBytes;
  // As in delta_rule/segments.cpp: near the point where both limits are equal it takes longer than either.
  const double cluster = kFirstFactors + std::sqrt(std::hypot(chain * chain, bytes * bytes));
  const double prepare = kPrepareLaunch + positions * (4 * a.Dk + 384) / kBytes;
  const tile::LaunchPlan plan = delta_rule::fastest_segments(a);
  return cluster < prepare + delta_rule::estimated_time(a, plan, 256, 128) + (plan.segments > 1 ? kNoEarlyStart : 0);
}

}  // namespace tutorial::gated_delta_rule
