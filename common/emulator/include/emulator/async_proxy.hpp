#pragma once
/// @file
/// Shared memory as bulk copies see it: a second image, which ordinary stores do not reach. To be called in kernels
/// only.

#include <cstddef>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "emulator/races.hpp"

namespace emulator {

/// Adds a write of up to 16 bytes to those that this thread's next fence takes to the image.
void push_async_proxy_write(void* address, const void* value, std::size_t bytes);
/// Takes this thread's writes to the image.
void fence_async_proxy(std::source_location where);

/// Notes that this thread reads 16 bytes of shared memory by itself, not by a copy. Before a bulk load overwrites them,
/// it or the thread that issues the load has to call fence_async_proxy().
void note_shared_read(const void* address, std::source_location where);

/// Writes shared memory. The image gets the value when this thread calls fence_async_proxy(). Always inline, so that reports
/// name the line of the kernel.
template <class T>
requires(std::is_trivially_copyable_v<T> && sizeof(T) <= 16)
    [[gnu::always_inline]] inline void write_for_async_proxy(T* address, const T& value) {
  *address = value;
  push_async_proxy_write(address, &value, sizeof(T));
}

}  // namespace emulator
