#pragma once
/// @file
/// What the stages of `--backward` on tensor cores give to the kernels of the operator.

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"

namespace tutorial::delta_rule {

inline constexpr float kLeastBeta = 0x1p-32f;  ///< in the place of every beta below it; its square is no underflow

/// The operator's arguments, without outputs.
inline Bf16Arguments forward_of(const Bf16BackwardArguments& g) {
  return {g.B, g.H, g.L, g.Dk, g.Dv, g.C, g.scale, g.normalize_keys, g.q, g.k, g.v, g.beta, g.initial_state, {}, {}};
}

}  // namespace tutorial::delta_rule
