#include "common/tile/launch_plan.hpp"

#include <algorithm>
#include <cstdint>

#include "common/ceil_div.hpp"
#include "common/device/device.hpp"

namespace tutorial::tile {
namespace {

constexpr int kChunkLength = 64;

}  // namespace

LaunchPlan make_launch_plan(int L, int columns, int segments) {
  const int chunks = ceil_div(L, kChunkLength), each = ceil_div(chunks, std::min(segments, chunks));
  return {columns, ceil_div(chunks, each), each * kChunkLength, nullptr};
}

LaunchPlan one_wave(const Extents& e) {
  const int columns = widest_tile(e);
  const std::int64_t blocks = std::int64_t(e.B) * e.H * ceil_div(e.Dv, columns);
  return make_launch_plan(e.L, columns, int(std::max<std::int64_t>(multiprocessor_count() / blocks, 1)));
}

std::int64_t launch_plan_memory(const Extents& e, const LaunchPlan& plan) {
  return std::int64_t(sizeof(float)) * e.B * e.H * (plan.segments - 1) * e.Dk * e.Dv;
}

}  // namespace tutorial::tile
