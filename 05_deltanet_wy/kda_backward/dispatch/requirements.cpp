/// @file
/// The memory that the stages of `--backward` on the CPU take. What a kernel needs stands in its own file.

#include <algorithm>

#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/kda_backward.hpp"
#include "common/ceil_div.hpp"
#include "common/parallel.hpp"

namespace tutorial::kda {

std::int64_t recurrent_backward_memory(const FloatBackwardArguments& a) {
  const std::int64_t L = a.L, Dk = a.Dk, Dv = a.Dv, states = ceil_div(a.L, 64) + std::min<std::int64_t>(L, 64) + 2;
  return 8 * (L * (7 * Dk + 4 * Dv + 4) + states * Dk * Dv) * processor_count();
}

std::int64_t chunkwise_backward_memory(const FloatBackwardArguments& a) {
  const std::int64_t C = std::min(a.C, a.L), Dk = a.Dk, Dv = a.Dv;
  const std::int64_t chunk = C * (15 * Dk + 8 * Dv + 3) + 6 * C * C;
  return 8 * ((ceil_div(a.L, a.C) + 2) * Dk * Dv + chunk) * processor_count();
}

}  // namespace tutorial::kda
