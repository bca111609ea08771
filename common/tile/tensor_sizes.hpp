#pragma once
/// @file
/// The sizes of an operator's tensors, as bulk copies take them.

#include "common/device/tensor_map.hpp"

namespace tutorial::tile {

/// Those of a [B, H, L, D] tensor.
template <class Arguments>
TensorSizes tensor_sizes(const Arguments& a, int D) {
  return {a.B, a.H, a.L, D};
}

}  // namespace tutorial::tile
