#pragma once
/// @file
/// A test on another card than the emulator is.

#include <cstdlib>

namespace tutorial {

/// For as long as it lives, the emulator is this card: a value of EMULATOR_DEVICE.
class OnCard {
 public:
  explicit OnCard(const char* card) { setenv("EMULATOR_DEVICE", card, 1); }
  ~OnCard() { unsetenv("EMULATOR_DEVICE"); }
  OnCard(const OnCard&) = delete;
  OnCard& operator=(const OnCard&) = delete;
};

}  // namespace tutorial
