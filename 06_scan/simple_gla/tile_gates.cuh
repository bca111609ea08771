#pragma once
/// @file
/// The gates of a tile: the gate of each step, the decay from after each step to the tile's end, and the sum of all
/// gates.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/simple_gla.hpp"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"

namespace tutorial::scan {

/// In shared memory.
template <int kSteps>
struct TileGates {
  float gate[kSteps], decay_to_end[kSteps];
  float log_decay;  ///< of the tile
};

/// Loads the gates of a tile, of which `rows` exist; the others are 1. A warp calls it, and a barrier must follow. The
/// decays to the end are exp of sums of the gates *behind* a step, added up from the tile's end: no gate is divided by,
/// and no sum is subtracted from another.
/// @param first the tile's first step
template <int kSteps>
__device__ __forceinline__ void load_gates(TileGates<kSteps>& gates, const simple_gla::FloatArguments& a, int b, int h,
                                           int first, int rows) {
  constexpr int kOwn = kSteps / 32;  // steps of a lane; lane 0 has the last ones
  const int lane = int(lane_index());
  float behind[kOwn], own = 0;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int step = kSteps - 1 - (lane * kOwn + i);
    const float g = step < rows ? load_global(a.g.row(b, h, first + step)) : 0.0f;
    gates.gate[step] = decay(g);
    behind[i] = own;
    own += g;
  }
  const float sum = warp_prefix_sum(own), lanes_behind = shuffle_up(sum, 1);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    gates.decay_to_end[kSteps - 1 - (lane * kOwn + i)] = decay(lane == 0 ? behind[i] : lanes_behind + behind[i]);
  }
  if (lane == 31) gates.log_decay = sum;
}

}  // namespace tutorial::scan
