/// @file
/// What the tensor-core stages require of a problem, and the memory that they take.

#include "common/tile/requirements.hpp"

#include "03_gla/gla/launch_plan.hpp"
#include "03_gla/gla/prepared.hpp"

namespace tutorial::gla {

std::string subchunk_walk_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = tile::tensor_core_unsupported(a); !reason.empty()) return reason;
  return tile::has_aligned_rows(a.g) ? "" : "rows of g are not aligned to 16 bytes";
}

std::int64_t walk_memory(const Bf16Arguments& a, const LaunchPlan& plan) {
  return prepared_memory(a) + tile::launch_plan_memory(tile::extents_of(a), plan) +
         std::int64_t(sizeof(float)) * a.B * a.H * (plan.segments - 1) * a.Dk;
}

std::int64_t subchunk_walk_memory(const Bf16Arguments& a) {
  return prepared_memory(a);
}

std::int64_t sequence_parallel_memory(const Bf16Arguments& a) {
  return walk_memory(a, tile::one_wave(tile::extents_of(a)));
}

}  // namespace tutorial::gla
