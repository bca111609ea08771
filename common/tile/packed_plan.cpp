#include "common/tile/packed_plan.hpp"

#include <algorithm>
#include <climits>

#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/tile/block_columns.hpp"

namespace tutorial::tile {
namespace {

constexpr int kChunkLength = 64;

std::int64_t blocks_per_segment(const Extents& e, int columns) {
  return std::int64_t(e.H) * ceil_div(e.Dv, columns);
}

}  // namespace

PackedPlan packed_plan(const Extents& e, int sequences) {
  return packed_plan(e, sequences, widest_tile(e), kChunkLength);
}

PackedPlan packed_plan(const Extents& e, int sequences, int columns, int shortest) {
  const std::int64_t blocks = blocks_per_segment(e, columns);
  const std::int64_t share = ceil_div(e.L * blocks, multiprocessor_count());
  const std::int64_t longest = std::clamp<std::int64_t>(share, std::min(shortest, e.L), e.L);
  const int length = ceil_div(longest, kChunkLength) * kChunkLength;
  return {columns, length, (e.L - 1) / length, sequences};
}

std::int64_t packed_plan_memory(const Extents& e, const PackedPlan& plan) {
  return std::int64_t(sizeof(float)) * plan.states * e.H * e.Dk * e.Dv + std::int64_t(sizeof(int4)) * plan.entries();
}

const char* packed_plan_unsupported(const Extents& e, const PackedPlan& plan) {
  const bool fits = std::int64_t(plan.states) + plan.sequences <= INT_MAX / blocks_per_segment(e, plan.columns);
  return fits ? "" : "more than 2^31 - 1 blocks: the grid";
}

}  // namespace tutorial::tile
