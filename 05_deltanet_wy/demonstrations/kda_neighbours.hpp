#pragma once
/// @file
/// Compares `recurrent` with the two operators that KDA is made of, where it should be the same.

#include "common/chapter/demonstration.hpp"

namespace tutorial::kda {

/// With g = 0, `recurrent` and delta_rule's `ut_transform`; with keys that are different unit vectors, beta = 1 and no
/// initial state, `recurrent` and the `chunkwise` of chapter 03's gla: there no row of the state is written twice, so
/// there is nothing to replace. Passed: outputs and final states differ by at most 1e-5.
Demonstration matches_delta_rule_and_gla();

}  // namespace tutorial::kda
