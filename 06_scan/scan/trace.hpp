#pragma once
/// @file
/// `--trace`: the tree of the stage `blelloch`, level by level, for eight steps.

#include "common/chapter/demonstration.hpp"

namespace tutorial::scan {

Demonstration blelloch_tree();

}  // namespace tutorial::scan
