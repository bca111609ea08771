#pragma once
/// @file
/// From a problem's widths to the kernel that was compiled for them.

#include "common/tile/chunk_shape.cuh"

namespace tutorial::tile {

/// Calls f with the smallest shape that has Dk, up to 256, and `columns`, 64 or 128. No shape has a Dk of 256 and 128
/// columns, because its state would take 256 registers of each thread. In this case f gets the shape with 256 and 64.
/// @tparam Shape a template of the widths, such as ChunkShape
template <template <int, int> class Shape = ChunkShape, class F>
void select_shape(int Dk, int columns, F f) {
  if (Dk <= 64) {
    columns <= 64 ? f(Shape<64, 64>()) : f(Shape<64, 128>());
  } else if (Dk <= 128) {
    columns <= 64 ? f(Shape<128, 64>()) : f(Shape<128, 128>());
  } else {
    f(Shape<256, 64>());
  }
}

/// The same for kernels that are written for 64 columns.
template <template <int, int> class Shape = ChunkShape, class F>
void select_shape(int Dk, F f) {
  if (Dk <= 64) {
    f(Shape<64, 64>());
  } else if (Dk <= 128) {
    f(Shape<128, 64>());
  } else {
    f(Shape<256, 64>());
  }
}

}  // namespace tutorial::tile
