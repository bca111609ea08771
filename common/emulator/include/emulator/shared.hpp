#pragma once
/// @file
/// Dynamic shared memory.

#include <cstddef>

namespace emulator {

/// The block's dynamic shared memory, aligned to 1024 bytes; nullptr if the launch asked for none.
void* dynamic_shared();
/// Its size in bytes.
std::size_t dynamic_shared_size();

}  // namespace emulator
