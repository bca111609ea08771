#pragma once
/// @file
/// What most kernels include, for a build that compiles it once: tutorial_stages() in cmake/Backend.cmake. A kernel still
/// includes what it uses.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/trace.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/view.hpp"
