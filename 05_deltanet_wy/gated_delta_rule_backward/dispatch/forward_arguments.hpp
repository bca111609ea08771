#pragma once
/// @file
/// What the kernels of `--backward` give to those of the operator.

#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"

namespace tutorial::gated_delta_rule {

using delta_rule::kLeastBeta;

/// The operator's arguments, without outputs.
inline Bf16Arguments forward_of(const Bf16BackwardArguments& g) {
  return {delta_rule::forward_of(g), g.g};
}

}  // namespace tutorial::gated_delta_rule
