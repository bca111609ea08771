#pragma once
/// @file
/// Compares `recurrent` with chapter 02: if there is nothing to replace, the two operators are the same.

#include "common/chapter/demonstration.hpp"

namespace tutorial::delta_rule {

/// Draws a small problem with orthonormal keys (L <= Dk), beta = 1 and no initial state, and gives it to `recurrent`
/// and to chapter 02's `chunkwise`. Passed: outputs and final states differ by at most 1e-5.
Demonstration matches_chapter_02();

}  // namespace tutorial::delta_rule
