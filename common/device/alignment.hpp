#pragma once
/// @file
/// Emulator only: the alignment that a GPU insists on and a CPU does not.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <source_location>

#include <emulator/trap.hpp>

namespace tutorial {

/// Ends the launch with a report (emulator::trap()) unless `address` is a multiple of `alignment` bytes; a GPU would
/// end it with "misaligned address".
inline void check_alignment(const void* address, std::size_t alignment, std::source_location where) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment == 0) return;
  char text[80];
  std::snprintf(text, sizeof text, "misaligned address: %p is not a multiple of %zu", address, alignment);
  emulator::trap(text, where);
}

}  // namespace tutorial
