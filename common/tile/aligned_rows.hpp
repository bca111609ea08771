#pragma once
/// @file
/// What 16-byte loads require of a tensor.

#include <cstdint>

#include "common/view.hpp"

namespace tutorial::tile {

/// Whether every row of the view begins at a multiple of 16 bytes.
template <class T>
bool has_aligned_rows(const View<T>& view) {
  constexpr int kElements = 16 / int(sizeof(T));
  return reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.stride_b % kElements == 0 &&
         view.stride_h % kElements == 0 && view.stride_l % kElements == 0;
}

}  // namespace tutorial::tile
