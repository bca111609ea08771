/// @file
/// What the tensor-core stages require of a problem, and the memory that they take.

#include "common/tile/requirements.hpp"

#include "04_fused_chunk/simple_gla/launch_plan.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::simple_gla {

std::string fused_unsupported(const Bf16Arguments& a) {
  return tile::tensor_core_unsupported(a);
}

std::string two_kernels_unsupported(const Bf16Arguments& a) {
  return tile::one_set_unsupported(a);
}

std::int64_t two_kernels_memory(const Bf16Arguments& a) {
  return 2 * std::int64_t(a.B) * a.H * ceil_div(a.L, 64) * a.Dk * a.Dv;
}

std::int64_t walk_memory(const Bf16Arguments& a, const LaunchPlan& plan) {
  return tile::launch_plan_memory(tile::extents_of(a), plan) +
         std::int64_t(sizeof(float)) * a.B * a.H * (plan.segments - 1);
}

std::int64_t sequence_parallel_memory(const Bf16Arguments& a) {
  return walk_memory(a, tile::one_wave(tile::extents_of(a)));
}

}  // namespace tutorial::simple_gla
