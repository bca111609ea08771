#pragma once
/// @file
/// Compares `recurrent` with chapter 02: without gates, gla is chapter 02's operator.

#include "common/chapter/demonstration.hpp"

namespace tutorial::gla {

/// Draws a small problem with g = 0 and gives it to `recurrent` and to chapter 02's `chunkwise`: the last of its stages
/// that runs on the CPU and in fp32, so that the check needs no GPU and can be stricter than bf16 allows. Passed:
/// outputs and final states differ by at most 1e-5.
Demonstration matches_chapter_02();

}  // namespace tutorial::gla
