#include "03_gla/gla_backward/between.hpp"

#include "common/ceil_div.hpp"
#include "common/device/workspace.hpp"

namespace tutorial::gla {
namespace {

/// Elements of S at all borders of chunks of 64.
std::size_t state_elements(const Bf16BackwardArguments& a) {
  return std::size_t(a.B) * std::size_t(a.H) * std::size_t(ceil_div(a.L, 64) + 1) * std::size_t(a.Dk * a.Dv);
}

}  // namespace

Bf16Arguments forward_of(const Bf16BackwardArguments& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, a.C, a.scale, a.q, a.k, a.v, a.g, a.initial_state, {}, {}};
}

Between reserve_between(const Bf16BackwardArguments& a) {
  auto* states = workspace<__nv_bfloat16>("gla --backward: states of chunks", 2 * state_elements(a));
  return {reserve_prepared(forward_of(a)), states, states + state_elements(a)};
}

std::int64_t between_memory(const Bf16BackwardArguments& a) {
  return prepared_memory(forward_of(a)) + std::int64_t(2 * state_elements(a) * sizeof(__nv_bfloat16));
}

}  // namespace tutorial::gla
