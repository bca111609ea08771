#include "04_fused_chunk/simple_gla_backward/segment_plan.hpp"

#include <algorithm>

#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::simple_gla {

tile::LaunchPlan plan_of(const Bf16BackwardArguments& b) {
  const std::int64_t blocks = std::int64_t(b.B) * b.H * (2 * ceil_div(b.Dk, 64) + ceil_div(b.Dv, 64));
  const int filling = int(ceil_div(std::int64_t(2) * multiprocessor_count(), blocks));
  const int most = ceil_div(b.L, 4 * 64);
  return tile::make_launch_plan(b.L, 64, std::max(std::min(filling, most), ceil_div(b.L, kLongest)));
}

}  // namespace tutorial::simple_gla
