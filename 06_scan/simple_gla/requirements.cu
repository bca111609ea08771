#include "06_scan/simple_gla/requirements.hpp"

#include <climits>

#include "06_scan/memory_shortage.hpp"
#include "06_scan/scan/requirements.hpp"
#include "06_scan/simple_gla/published_states.cuh"
#include "06_scan/simple_gla/scan_of_states.hpp"
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

/// How a stage of tiles cuts a problem, and scan_states, whose tiles have one step.
StatePlan tiles_of(const FloatArguments& a) {
  return {a, steps_of_tile(a.Dk)};
}
StatePlan steps_of(const FloatArguments& a) {
  return {a, 1};
}

/// The sizes of the scan of its states.
Arguments scan_of(const FloatArguments& a, const StatePlan& plan) {
  return scan_of_states(a, plan, nullptr, {}, nullptr);
}

std::string plan_unsupported(const FloatArguments& a, const StatePlan& plan) {
  if (a.Dk > kMaxKeyDim) return "Dk > 256: the state's columns would not fit into the registers of 16 threads";
  if (plan.chains * plan.tiles > INT_MAX) return "more than 2^31 - 1 tiles: the grid";
  return a.L > INT_MAX - plan.steps ? "L > 2^31 - 1 less a tile: positions are counted in int" : "";
}

/// The same for a stage that calls the operator scan.
std::string scan_unsupported(const FloatArguments& a, const StatePlan& plan, std::int64_t memory) {
  if (const std::string reason = plan_unsupported(a, plan); !reason.empty()) return reason;
  const std::string scan = dispatch_unsupported(scan_of(a, plan));
  return scan.empty() ? memory_shortage(kStatesTag, memory) : "the scan of its states: " + scan;
}

}  // namespace

// --- scan_states ---

std::string scan_states_unsupported(const FloatArguments& a) {
  return scan_unsupported(a, steps_of(a), scan_states_memory(a));
}

std::int64_t scan_states_memory(const FloatArguments& a) {
  const StatePlan plan = steps_of(a);
  return bytes(2 * plan.floats()) + dispatch_memory(scan_of(a, plan));
}

std::int64_t scan_states_bytes_moved(const FloatArguments& a) {
  const StatePlan plan = steps_of(a);
  std::int64_t floats = inputs_and_output(a) + 2 * plan.floats() + 2 * plan.chains * a.L;  // the last: gates
  if (a.initial_state.data) floats += head_states(a);
  if (a.final_state.data) floats += head_states(a);
  return bytes(floats) + dispatch_bytes_moved(scan_of(a, plan));
}

// --- scan_tiles ---

std::string scan_tiles_unsupported(const FloatArguments& a) {
  return scan_unsupported(a, tiles_of(a), scan_tiles_memory(a));
}

std::int64_t scan_tiles_memory(const FloatArguments& a) {
  const StatePlan plan = tiles_of(a);
  return bytes(2 * plan.floats() + plan.heads * plan.tiles) + dispatch_memory(scan_of(a, plan));
}

std::int64_t scan_tiles_bytes_moved(const FloatArguments& a) {
  const StatePlan plan = tiles_of(a);
  const std::int64_t heads = std::int64_t(a.B) * a.H;
  std::int64_t floats = inputs_and_output(a) + 2 * plan.chains * a.L;
  floats += heads * a.L * (std::int64_t(a.Dk) * column_tiles(a.Dv) + a.Dv);                 // k and v again
  floats += heads * (plan.tiles + (2 * plan.tiles - 1) * std::int64_t(plan.state_size()));  // decays, sums and states
  if (a.initial_state.data) floats += 2 * head_states(a);
  if (a.final_state.data) floats += head_states(a);
  return bytes(floats) + dispatch_bytes_moved(scan_of(a, plan));
}

// --- scan_fused ---

std::string scan_fused_unsupported(const FloatArguments& a) {
  if (const std::string reason = plan_unsupported(a, tiles_of(a)); !reason.empty()) return reason;
  return memory_shortage(kStatesTag, scan_fused_memory(a));
}

std::int64_t scan_fused_memory(const FloatArguments& a) {
  const StatePlan plan = tiles_of(a);
  return (plan.tiles > 1 ? bytes(2 * plan.floats()) : 0) + look_back_memory(published_tiles(plan) * kStateWarps);
}

std::int64_t scan_fused_bytes_moved(const FloatArguments& a) {
  const StatePlan plan = tiles_of(a);
  std::int64_t floats = inputs_and_output(a) + plan.chains * a.L;
  // Two states per tile, but none from the last tile, and one from the first.
  if (plan.tiles > 1) floats += plan.heads * std::int64_t(plan.state_size()) * (2 * plan.tiles - 3);
  if (a.initial_state.data) floats += head_states(a);
  if (a.final_state.data) floats += head_states(a);
  return bytes(floats);
}

}  // namespace tutorial::scan
