#pragma once
/// @file
/// One stage on a given problem, without a command line: what the tests of a chapter are written with.

#include <string>

#include "common/chapter/operator.hpp"
#include "common/chapter/placement.hpp"
#include "common/chapter/problem.hpp"

namespace tutorial {

/// Runs a stage once; what it does not write is NaN, what it says that it is without is not there. Throws what the stage throws, and std::runtime_error where it
/// writes into the padding of the layout.
Outputs evaluate(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout = {});

/// The reference in double; for a stage in bf16, on inputs rounded to bf16.
Outputs evaluate_reference(const Operator& definition, const Problem& problem, Dtype dtype = Dtype::fp32);

/// The reason why a stage cannot run a problem; empty where it can.
std::string why_not(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout = {});

}  // namespace tutorial
