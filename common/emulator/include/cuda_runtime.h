#pragma once
/// @file
/// What CUDA's header of this name declares, as far as this project uses it, for the host's C++ compiler.

#include "emulator/atomics.hpp"
#include "emulator/barrier.hpp"
#include "emulator/bits.hpp"
#include "emulator/builtins.hpp"
#include "emulator/cache_hints.hpp"
#include "emulator/fences.hpp"
#include "emulator/math.hpp"
#include "emulator/qualifiers.hpp"
#include "emulator/runtime_device.hpp"
#include "emulator/runtime_error.hpp"
#include "emulator/runtime_memory.hpp"
#include "emulator/runtime_stream.hpp"
#include "emulator/vector_types.hpp"
#include "emulator/warp_collectives.hpp"
