#pragma once
/// @file
/// The size of what the walks on warpgroups leave in device memory.

#include <cstdint>

#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "common/ceil_div.hpp"

namespace tutorial::delta_rule {

/// Bytes, beside T and P.
struct WorkspaceBytes {
  std::int64_t rows;           ///< of a head's states: 64 ceil(Dv / 64) of each S^T
  std::int64_t states, v_new;  ///< dS takes as much as S, and the rounding errors of v_new as much as v_new

  /// @param every chunks from one state to the next
  WorkspaceBytes(const Bf16BackwardArguments& g, int every)
      : rows(std::int64_t(ceil_div(ceil_div(g.L, 64), every)) * ceil_div(g.Dv, 64) * 64),
        states(std::int64_t(g.B) * g.H * rows * g.Dk * 2),
        v_new(std::int64_t(g.B) * g.H * g.L * g.Dv * 2) {}
  /// Of all of it.
  std::int64_t all() const { return 2 * states + 2 * v_new; }
};

}  // namespace tutorial::delta_rule
