#pragma once
/// @file
/// First checks of `gated_delta_rule`: two special cases are operators that the reader knows.

#include "common/chapter/demonstration.hpp"

namespace tutorial::gated_delta_rule {

/// Without gates (g = 0) the operator is `delta_rule`. With orthonormal keys, beta = 1 and no initial state there is
/// nothing to replace, and it is chapter 04's `simple_gla`. Compares `recurrent` with the CPU chunks of both.
Demonstration matches_neighbours();

}  // namespace tutorial::gated_delta_rule
