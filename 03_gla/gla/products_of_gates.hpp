#pragma once
/// @file
/// Where the products of gates that `parallel_unstable` divides by are of no use any more.

#include <string>

#include "03_gla/gla.hpp"

namespace tutorial::gla {

/// The first position at which these gates break `parallel_unstable`, as a sentence; empty where none does, and before
/// there are gates.
std::string what_breaks(const FloatArguments&);

}  // namespace tutorial::gla
