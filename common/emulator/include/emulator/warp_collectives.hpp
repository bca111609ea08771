#pragma once
/// @file
/// Every function of CUDA that the lanes of a warp call together, but __syncwarp(), which is in barrier.hpp. Each is
/// one warp_exchange() and what the lane makes of it; the last parameter, `where`, is for reports of lanes that never
/// come.

#include "emulator/reductions.hpp"
#include "emulator/shuffles.hpp"
#include "emulator/votes.hpp"
