#pragma once
/// @file
/// `--trace`: the tree of the stage `blelloch`, level by level, for eight steps.

#include "common/chapter/demonstration.hpp"

namespace tutorial::scan {

/// The tree for eight steps, and whether its result is that of the loop.
Demonstration blelloch_tree();

}  // namespace tutorial::scan
