#pragma once
/// @file
/// Division that rounds up: how many tiles, blocks or chunks it takes.

#include <cstdint>

namespace tutorial {

/// The least number of pieces of size `divisor` that hold `count`, both 1 or more. Written so that it cannot overflow.
/// The result fits into int.
constexpr int ceil_div(std::int64_t count, std::int64_t divisor) {
  return int((count - 1) / divisor + 1);
}

}  // namespace tutorial
