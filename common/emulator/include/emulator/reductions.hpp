#pragma once
/// @file
/// Reductions of integers over the lanes of a mask under CUDA's names. Every lane of the mask gets the result. All
/// lanes of the mask call; else the launch ends as warp_exchange() says.

#include <concepts>
#include <source_location>

#include "emulator/math.hpp"
#include "emulator/warp_gather.hpp"

namespace emulator {

/// The integers that compute capability 8.0 reduces.
template <class T>
concept Reducible = std::same_as<T, int> || std::same_as<T, unsigned>;

/// combine(...) of the values of all lanes of the mask, in the order: this lane's, then the others', the lowest first.
template <Reducible T, class Combine>
T reduce(unsigned mask, T mine, std::source_location where, Combine combine) {
  const auto values = gather(mask, mine, where);
  T result = mine;
  for_each_lane(mask & existing_lanes() & ~(1u << lane()),
                [&](unsigned lane) { result = combine(result, values[lane]); });
  return result;
}

}  // namespace emulator

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's

/// The sum; it wraps around.
template <emulator::Reducible T>
T __reduce_add_sync(unsigned mask, T value, std::source_location where = std::source_location::current()) {
  return static_cast<T>(
      emulator::reduce(mask, static_cast<unsigned>(value), where, [](unsigned a, unsigned b) { return a + b; }));
}
/// The least value.
template <emulator::Reducible T>
T __reduce_min_sync(unsigned mask, T value, std::source_location where = std::source_location::current()) {
  return emulator::reduce(mask, value, where, [](T a, T b) { return min(a, b); });
}
/// The largest value.
template <emulator::Reducible T>
T __reduce_max_sync(unsigned mask, T value, std::source_location where = std::source_location::current()) {
  return emulator::reduce(mask, value, where, [](T a, T b) { return max(a, b); });
}
/// The bits that all have.
inline unsigned __reduce_and_sync(unsigned mask, unsigned value,
                                  std::source_location where = std::source_location::current()) {
  return emulator::reduce(mask, value, where, [](unsigned a, unsigned b) { return a & b; });
}
/// The bits that any has.
inline unsigned __reduce_or_sync(unsigned mask, unsigned value,
                                 std::source_location where = std::source_location::current()) {
  return emulator::reduce(mask, value, where, [](unsigned a, unsigned b) { return a | b; });
}
/// The bits that an odd number of them have.
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value,
                                  std::source_location where = std::source_location::current()) {
  return emulator::reduce(mask, value, where, [](unsigned a, unsigned b) { return a ^ b; });
}

// NOLINTEND(bugprone-reserved-identifier)
