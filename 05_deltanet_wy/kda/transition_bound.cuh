#pragma once
/// @file
/// The bound of a chunk (chunk/zero_starts.cuh). With the rows of a chunk, the walk turns S into M S + J^T V, where
///
///     M = diag(exp(b_end)) - J^T K+ = diag(exp(b_end)) - sum over i of J_i^T K+_i,
///
/// and a sum stretches no vector by more than its terms do together:
///
///     |M|  <=  max over d of exp(b_end) + sum over i of |J_i| |K+_i|
///
/// That holds for any keys and any beta, as it is computed from the numbers that the walk takes. It is small where
/// gates are: J_i contains the decays from i to the chunk's end, and K+_i those from its start to i.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {

/// The largest of a chunk's decays, [Dk] in shared memory. One warp finds it.
__device__ __forceinline__ float largest_of(const float* decays, int Dk) {
  float largest = 0;
  for (int d = int(lane_index()); d < Dk; d += 32) largest = max(largest, decays[d]);
  return warp_max(largest);
}

/// A warp's part of the sum, of its 16 rows of J.
/// @param K K+
template <int kDk>
__device__ __forceinline__ float bound_of_rows(const tile::WarpgroupState<kDk>& J, const tile::PanelTile<kDk>& K) {
  const auto square = [](std::uint32_t x) {
    const float2 two = unpack(x);
    return two.x * two.x + two.y * two.y;
  };
  const int unit = tile::first_unit_of_rows();
  float of_J[2] = {}, of_K[2] = {};  // squares, of the lane's two rows
#pragma unroll
  for (int i = 0; i < kDk / 2; ++i) of_J[i / 2 % 2] += J[i] * J[i];
#pragma unroll
  for (int d = 0; d < kDk; d += 16) {
    std::uint32_t k[4];
    ldmatrix_x4(k, K.data + K.advance(unit, 0, d));
#pragma unroll
    for (int i = 0; i < 4; ++i) of_K[i % 2] += square(k[i]);
  }
  float sum = 0;
#pragma unroll
  for (int row = 0; row < 2; ++row) sum += sqrtf(warp_sum<4>(of_J[row])) * sqrtf(warp_sum<4>(of_K[row]));
#pragma unroll
  for (int flipped = 4; flipped < 32; flipped *= 2) sum += shuffle_xor(sum, flipped);
  return sum;
}

}  // namespace tutorial::kda
