#pragma once
/// @file
/// A scan over tiles, in three kernels.

#include "06_scan/simple_gla.hpp"

namespace tutorial::scan {

/// GPU: a scan over tiles of 64 steps, whose states are in memory.
void scan_tiles(const simple_gla::FloatArguments&);

}  // namespace tutorial::scan
