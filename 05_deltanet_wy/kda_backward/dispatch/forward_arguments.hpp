#pragma once
/// @file
/// What the kernels of `--backward` give to those of the operator.

#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda_backward.hpp"

namespace tutorial::kda {

/// The operator's arguments, without outputs.
inline Bf16Arguments forward_of(const Bf16BackwardArguments& g) {
  return {g.B, g.H, g.L, g.Dk, g.Dv, g.C, g.scale, g.normalize_keys, g.q, g.k, g.v, g.g, g.beta, g.initial_state,
          {},  {}};
}

}  // namespace tutorial::kda
