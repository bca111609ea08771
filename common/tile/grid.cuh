#pragma once
/// @file
/// The grid of a kernel whose blocks walk a segment of a head.

#include <cuda_runtime.h>

#include "common/tile/extents.hpp"

namespace tutorial::tile {

/// The grid of a kernel whose blocks each have one tile of Dv of one segment: (tiles x segments, H, B).
template <class Shape>
dim3 grid_of(const Extents& e, int segments) {
  return dim3((unsigned(e.Dv - 1) / Shape::kDv + 1) * unsigned(segments), unsigned(e.H), unsigned(e.B));
}

}  // namespace tutorial::tile
