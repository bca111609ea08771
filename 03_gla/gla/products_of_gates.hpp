#pragma once
/// @file
/// Finds where the products of gates by which `parallel_unstable` divides become useless.

#include <string>

#include "03_gla/gla.hpp"

namespace tutorial::gla {

/// The first position at which these gates break `parallel_unstable`, as a sentence; empty if none does, and before
/// there are gates.
std::string what_breaks(const FloatArguments&);

}  // namespace tutorial::gla
