#pragma once
/// @file
/// What a warp computes at once.

#include "emulator/warp.hpp"

namespace emulator {

/// Computes for all lanes. @param lanes what each one brought; nullptr for lanes that the block does not have
using WarpFunction = void(void* const (&lanes)[kWarpSize]);

}  // namespace emulator
