#pragma once
/// @file
/// The scan of maps over the lanes of a warp. All lanes must call it; if some do not, the emulator ends the launch with
/// a report.
/// Source: Hillis and Steele, "Data parallel algorithms", CACM 29, 1986; Sengupta, Harris, Garland, "Efficient Parallel
/// Scan Algorithms for GPUs", NVR-2008-003.

#include "06_scan/affine.hpp"
#include "common/device/warp.cuh"

namespace tutorial::scan {

/// The map of the lane `distance` below; the lowest lanes get the identity.
__device__ __forceinline__ Affine<float> map_below(const Affine<float>& map, unsigned distance) {
  const Affine<float> below{shuffle_up(map.log_decay, distance), shuffle_up(map.value, distance)};
  return lane_index() >= distance ? below : Affine<float>{};
}

/// The map of one lane, 0 to 31.
__device__ __forceinline__ Affine<float> map_of_lane(const Affine<float>& map, int lane) {
  return {__shfl_sync(kAllLanes, map.log_decay, lane), __shfl_sync(kAllLanes, map.value, lane)};
}

/// This lane's map after those of all lanes below that are a multiple of kStride away: Hillis and Steele's scan, in
/// log2(kLanes / kStride) rounds. All lanes of a warp execute the same instructions anyway, so the compositions that
/// have no effect cost nothing.
/// @tparam kLanes the lanes from this number on have the identity, or a scan within groups of so many lanes is enough
template <int kStride = 1, int kLanes = 32>
__device__ __forceinline__ Affine<float> warp_scan(Affine<float> map) {
#pragma unroll
  for (unsigned distance = kStride; distance < kLanes; distance *= 2) {
    const Affine<float> below{shuffle_up(map.log_decay, distance), shuffle_up(map.value, distance)};
    if (lane_index() >= distance) map = compose(below, map);
  }
  return map;
}

}  // namespace tutorial::scan
