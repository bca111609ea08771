#pragma once
/// @file
/// The layout of a state in device memory.

#include <cstdint>

#include "common/view.hpp"

namespace tutorial::tile {

/// The strides of the elements of a state. Rows need no alignment.
struct StateStrides {
  std::int64_t row;         ///< elements from one row to the next
  std::int64_t column = 1;  ///< from one column to the next; 1 unless the state is transposed

  /// Rows of packed elements.
  TUTORIAL_HOST_DEVICE StateStrides(std::int64_t row, std::int64_t column = 1)  // NOLINT(google-explicit-constructor)
      : row(row), column(column) {}
};

}  // namespace tutorial::tile
