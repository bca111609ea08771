#pragma once
/// @file
/// When bulk copies and products of warpgroups happen.

#include <cstdint>
#include <string>

namespace emulator {

/// What EMULATOR_ASYNC asks for. Late: a copy happens when a thread cannot go on without it, and a product when its
/// warp waits for it. Early: when it is issued. Random: each copy and each product is early or late.
struct AsyncOrder {
  enum class When { late, early, random };

  When when = When::late;
  std::uint64_t seed = 0;

  /// From the value of the variable. @throws std::invalid_argument for any other text
  static AsyncOrder parse(const std::string& text);
  /// The one for a launch. @throws std::invalid_argument
  static AsyncOrder current();
};

}  // namespace emulator
