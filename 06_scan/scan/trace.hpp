#pragma once
/// @file
/// `--trace`: the tree of the stage `blelloch`, level by level, for eight steps.

#include "common/chapter/demonstration.hpp"

namespace tutorial::scan {

/// The tree for eight steps, and whether it gives what the loop gives.
Demonstration blelloch_tree();

}  // namespace tutorial::scan
