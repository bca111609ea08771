#pragma once
/// @file
/// A test on another card than the emulator is.

#include <cstdlib>

#include "common/device/device.hpp"

namespace tutorial {

/// For as long as it lives, the emulator is this card: a value of EMULATOR_DEVICE.
class OnCard {
 public:
  explicit OnCard(const char* card) { setenv("EMULATOR_DEVICE", card, 1); }
  ~OnCard() { unsetenv("EMULATOR_DEVICE"); }
  OnCard(const OnCard&) = delete;
  OnCard& operator=(const OnCard&) = delete;
};

/// Whether the device is an H200 or the emulator as one: for tests of choices that were fitted to it.
inline bool is_an_h200() {
  return compute_capability() == 90 && multiprocessor_count() == 132 && memory_bytes_per_microsecond() > 4.5e6;
}

}  // namespace tutorial
