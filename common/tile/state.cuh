#pragma once
/// @file
/// A state in the registers of a block (chunk_threads.cuh): loaded, stored (load_state.cuh) and multiplied by a number.

#include "common/tile/chunk_shape.cuh"
#include "common/tile/load_state.cuh"

namespace tutorial::tile {

/// S *= factor.
template <class Shape>
__device__ __forceinline__ void scale_state(typename Shape::State& S, float factor) {
#pragma unroll
  for (auto& tiles : S) {
#pragma unroll
    for (auto& tile : tiles) {
#pragma unroll
      for (float& element : tile) element *= factor;
    }
  }
}

}  // namespace tutorial::tile
