#pragma once
/// @file
/// The indices of the thread that runs. The emulator sets them at each switch from one thread of a block to another,
/// so a debugger prints them and conditional breakpoints on them work.

#include "emulator/vector_types.hpp"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;
// NOLINTEND(readability-identifier-naming)
