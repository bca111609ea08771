#pragma once
/// @file
/// The four shuffles of a warp under CUDA's names. The lane that is read is computed as the PTX ISA does it for
/// shfl.sync: a lane whose source lies outside of its segment of `width` lanes gets its own value back. The value of a
/// source that is not in the mask is undefined on a GPU and 0xFF bytes, a NaN, here. A width that is no power of two up
/// to 32 ends the launch with a report, and so does what warp_exchange() does not allow.
/// Source: PTX ISA, "Data Movement and Conversion Instructions: shfl.sync".

#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "emulator/small_float.hpp"
#include "emulator/trap.hpp"
#include "emulator/warp.hpp"
#include "emulator/warp_gather.hpp"

namespace emulator {

/// What a shuffle moves: integers and floating-point numbers of up to 8 bytes.
template <class T>
concept Shuffleable = (std::is_arithmetic_v<T> && sizeof(T) <= 8) || is_small_float<T>;

/// The segment of a warp that a lane is in.
struct Segment {
  int lane, first, last;

  /// Of the thread that runs.
  Segment(int width, std::source_location where) : lane(static_cast<int>(emulator::lane())) {
    const bool power_of_two = width > 0 && (width & (width - 1)) == 0;
    if (!power_of_two || width > 32) trap("the width of a shuffle is not 1, 2, 4, 8, 16 or 32", where);
    first = lane / width * width;
    last = first + width - 1;
  }
};

/// The value of lane `source`.
template <Shuffleable T>
T shuffle(unsigned mask, T value, int source, std::source_location where) {
  Shuffled mine{0, static_cast<unsigned>(source)};
  std::memcpy(&mine.value, &value, sizeof value);
  warp_shuffle(mask, mine, sizeof value, where);
  std::memcpy(static_cast<void*>(&value), &mine.value, sizeof value);  // a 16-bit number has a constructor
  return value;
}

}  // namespace emulator

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's

/// The value of lane `source`, counted within the segment and modulo its width.
template <emulator::Shuffleable T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              std::source_location where = std::source_location::current()) {
  const emulator::Segment segment(width, where);
  return emulator::shuffle(mask, value, segment.first + (source & (width - 1)), where);
}

/// The value of the lane `distance` (modulo 32) below this one.
template <emulator::Shuffleable T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 std::source_location where = std::source_location::current()) {
  const emulator::Segment segment(width, where);
  const int source = segment.lane - static_cast<int>(distance % 32);
  return emulator::shuffle(mask, value, source >= segment.first ? source : segment.lane, where);
}

/// The value of the lane `distance` (modulo 32) above this one.
template <emulator::Shuffleable T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   std::source_location where = std::source_location::current()) {
  const emulator::Segment segment(width, where);
  const int source = segment.lane + static_cast<int>(distance % 32);
  return emulator::shuffle(mask, value, source <= segment.last ? source : segment.lane, where);
}

/// The value of the lane whose number differs in the bits of `flipped`. It may lie in a lower segment, but not in a
/// higher one.
template <emulator::Shuffleable T>
T __shfl_xor_sync(unsigned mask, T value, int flipped, int width = 32,
                  std::source_location where = std::source_location::current()) {
  const emulator::Segment segment(width, where);
  const int source = segment.lane ^ (flipped & 31);
  return emulator::shuffle(mask, value, source <= segment.last ? source : segment.lane, where);
}

// NOLINTEND(bugprone-reserved-identifier)
