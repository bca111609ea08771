#pragma once
/// @file
/// What a stage over several devices says of itself: how it compares with one device, and what the links carry.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "06_scan/over_devices.hpp"

namespace tutorial::over_devices {

/// Times in milliseconds, rates in bytes per second.
struct Measured {
  double all;           ///< all devices, the whole problem
  double one;           ///< one device, the whole problem
  double part;          ///< one device, its own positions alone
  double link_rate;     ///< of a long message from the first device to the second
  double message_rate;  ///< of a message as long as those of the stage
};

/// Medians of some runs. Nothing in the emulator, whose times mean nothing, and for a single device.
/// @param all runs the stage @param one runs the whole problem on the first device @param part runs its share there
/// @param message_bytes that one device sends to another at once
std::optional<Measured> measure(int N, const std::function<void()>& all, const std::function<void()>& one,
                                const std::function<void()>& part, std::int64_t message_bytes);

/// "2 devices: 0.52 MB over the links": and where times have been measured the two efficiencies and the links' rate.
/// Strong efficiency: one / (N all), the same L. Weak efficiency: part / all, where L grows with N.
std::string describe(int N, std::int64_t link_bytes, const std::optional<Measured>& measured);

}  // namespace tutorial::over_devices
