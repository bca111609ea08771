#pragma once
/// @file
/// Votes and matches of a warp under CUDA's names: which lanes of the mask say yes, which have the same value. All
/// lanes of the mask call; else the launch ends as warp_exchange() says.

#include <cstring>
#include <source_location>
#include <type_traits>

#include "emulator/warp.hpp"
#include "emulator/warp_gather.hpp"

// NOLINTBEGIN(bugprone-reserved-identifier): the names are CUDA's

/// A bit for each lane of the mask whose predicate is not zero.
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  const auto predicates = emulator::gather(mask, predicate, where);
  unsigned ballot = 0;
  emulator::for_each_lane(mask & emulator::existing_lanes(),
                          [&](unsigned lane) { ballot |= unsigned{predicates[lane] != 0} << lane; });
  return ballot;
}

/// Whether the predicate of any lane of the mask is not zero.
inline int __any_sync(unsigned mask, int predicate, std::source_location where = std::source_location::current()) {
  return __ballot_sync(mask, predicate, where) != 0;
}

/// Whether the predicates of all lanes of the mask are not zero.
inline int __all_sync(unsigned mask, int predicate, std::source_location where = std::source_location::current()) {
  return __ballot_sync(mask, predicate == 0, where) == 0;
}

/// The lanes that run together with this one, which a GPU leaves open. Here every thread runs by itself, so it is this
/// lane alone. A kernel that takes it for more, as for "all lanes of this branch", is wrong on a GPU, too.
inline unsigned __activemask() {
  return 1u << emulator::lane();
}

/// The lanes of the mask with the same bits in `value` as this one.
template <class T>
requires(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)) unsigned __match_any_sync(
    unsigned mask, T value, std::source_location where = std::source_location::current()) {
  const auto values = emulator::gather(mask, value, where);
  unsigned matches = 0;
  emulator::for_each_lane(mask & emulator::existing_lanes(), [&](unsigned lane) {
    matches |= unsigned{std::memcmp(&values[lane], &value, sizeof(T)) == 0} << lane;
  });
  return matches;
}

/// The mask, and *same = 1, if all of its lanes have the same bits in `value`; else 0 and *same = 0.
template <class T>
requires(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)) unsigned __match_all_sync(
    unsigned mask, T value, int* same, std::source_location where = std::source_location::current()) {
  const unsigned lanes = mask & emulator::existing_lanes();
  *same = __match_any_sync(mask, value, where) == lanes;
  return *same ? lanes : 0;
}

// NOLINTEND(bugprone-reserved-identifier)
