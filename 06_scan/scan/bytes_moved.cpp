#include <cstdint>

#include "06_scan/scan.hpp"
#include "06_scan/scan/dispatch/single_pass.hpp"

namespace tutorial::scan {

std::int64_t channel_bytes_moved(const Arguments& a) {
  const std::int64_t heads = std::int64_t(a.B) * a.H;
  const std::int64_t states = (a.initial_state.data ? a.D : 0) + (a.final_state.data ? a.D : 0);
  return 4 * heads * (3 * std::int64_t(a.L) * a.D + states + (a.final_log_decay.data ? a.Dg : 0));
}

std::int64_t dispatch_bytes_moved(const Arguments& a) {
  if (is_short(a)) return channel_bytes_moved(a);
  const std::int64_t heads = std::int64_t(a.B) * a.H, lanes = a.D == 1 ? 1 : (a.D - 1) / 4 + 1;
  // A gate that channels share is read by each lane that has four of them. y_0 is read by all threads of the first tile
  // where D = 1, else by those that look back.
  const std::int64_t gates = a.Dg == a.D ? a.D : lanes;
  const std::int64_t starts = !a.initial_state.data ? 0 : a.D == 1 ? TilePlan(a).tile_threads : a.D;
  const std::int64_t ends = (a.final_state.data ? a.D : 0) + (a.final_log_decay.data ? a.Dg : 0);
  return 4 * heads * (a.L * (2 * std::int64_t(a.D) + gates) + starts + ends);
}

}  // namespace tutorial::scan
