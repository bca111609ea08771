#include <cstdint>

#include "06_scan/scan.hpp"
#include "06_scan/simple_gla.hpp"
#include "06_scan/simple_gla/state_plan.hpp"

namespace tutorial::scan {
namespace {

using simple_gla::FloatArguments;

std::int64_t bytes(std::int64_t floats) {
  return std::int64_t(sizeof(float)) * floats;
}

/// Floats of all heads that every stage reads and writes: q, k and v where each tile of columns reads q and k, o.
std::int64_t inputs_and_output(const FloatArguments& a) {
  return std::int64_t(a.B) * a.H * a.L * (2 * std::int64_t(a.Dk) * column_tiles(a.Dv) + 2 * std::int64_t(a.Dv));
}

/// Floats of all heads' states.
std::int64_t head_states(const FloatArguments& a) {
  return std::int64_t(a.B) * a.H * a.Dk * a.Dv;
}

/// What dispatch of the operator scan moves for the states of tiles.
std::int64_t scan_bytes(const FloatArguments& a, const StatePlan& plan) {
  Arguments scan{};
  scan.B = a.B, scan.H = a.H, scan.L = int(plan.tiles), scan.D = plan.state_size(), scan.Dg = 1;
  return dispatch_bytes_moved(scan);
}

}  // namespace

std::int64_t scan_states_bytes_moved(const FloatArguments& a) {
  const StatePlan plan(a, 1);
  std::int64_t floats = inputs_and_output(a) + 2 * plan.floats() + 2 * plan.chains * a.L;  // the last: gates
  if (a.initial_state.data) floats += head_states(a);
  if (a.final_state.data) floats += head_states(a);
  return bytes(floats) + scan_bytes(a, plan);
}

std::int64_t scan_tiles_bytes_moved(const FloatArguments& a) {
  const StatePlan plan(a, steps_of_tile(a.Dk));
  const std::int64_t heads = std::int64_t(a.B) * a.H;
  std::int64_t floats = inputs_and_output(a) + 2 * plan.chains * a.L;
  floats += heads * a.L * (std::int64_t(a.Dk) * column_tiles(a.Dv) + a.Dv);                 // k and v again
  floats += heads * (plan.tiles + (2 * plan.tiles - 1) * std::int64_t(plan.state_size()));  // decays, sums and states
  if (a.initial_state.data) floats += 2 * head_states(a);
  if (a.final_state.data) floats += head_states(a);
  return bytes(floats) + scan_bytes(a, plan);
}

std::int64_t scan_fused_bytes_moved(const FloatArguments& a) {
  const StatePlan plan(a, steps_of_tile(a.Dk));
  std::int64_t floats = inputs_and_output(a) + plan.chains * a.L;
  // Two states per tile, but none from the last tile, and one from the first.
  if (plan.tiles > 1) floats += plan.heads * std::int64_t(plan.state_size()) * (2 * plan.tiles - 3);
  if (a.initial_state.data) floats += head_states(a);
  if (a.final_state.data) floats += head_states(a);
  return bytes(floats);
}

}  // namespace tutorial::scan
