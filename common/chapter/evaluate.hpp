#pragma once
/// @file
/// One stage on a given problem, without a command line: what the tests of a chapter are written with.

#include <string>

#include "common/chapter/operator.hpp"
#include "common/chapter/problem.hpp"
#include "common/chapter/stage_tensors.hpp"
#include "common/compare.hpp"

namespace tutorial {

/// Runs a stage once, and waits for it. What it does not write is NaN, what it says that it is without is not there.
/// It is not asked whether the stage supports the problem: see why_not(). Throws what the stage throws, CudaError where
/// its kernels fail, and std::runtime_error where it writes into the padding of the layout.
Outputs evaluate(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout = {});

/// The reference in double, its outputs rounded to fp32. With them come the terms that were subtracted in those that may
/// cancel (Output::cancels), and the size of the terms of sums (Output::is_sum). For a stage in bf16, on inputs rounded to
/// bf16. Throws what it throws.
/// @param dtype the stage's
Outputs evaluate_reference(const Operator& definition, const Problem& problem, Dtype dtype = Dtype::fp32);

/// Compares an output with that of a reference, which may have a term that was subtracted (Output::cancels).
/// std::out_of_range where the reference has no such output.
Comparison compare(const std::string& output, const Tensor& out, const Outputs& reference);

/// The reason why a stage cannot run a problem; empty where it can.
std::string why_not(const Operator& definition, const Stage& stage, const Problem& problem, const Layout& layout = {});

}  // namespace tutorial
