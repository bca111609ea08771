#pragma once
/// @file
/// How the kernels on tensor cores hold a chunk: 64 positions and four warps, which divide the columns of Dv among
/// them.

#include <cuda_runtime.h>

#include "common/device/hide_from_compiler.cuh"
#include "common/device/warp.cuh"

namespace tutorial::tile {

inline constexpr int kChunk = 64;  ///< positions of a chunk, C
inline constexpr int kWarps = 4;   ///< warps of a block
inline constexpr int kThreads = 32 * kWarps;

/// What the warps of a block hold in registers, of all of Dk <= kDk and of kDv columns of Dv. Warp w has kWarpColumns of
/// these columns.
template <int kDk_, int kDv_>
struct ChunkRegisters {
  static constexpr int kDk = kDk_;
  static constexpr int kDv = kDv_;
  static constexpr int kWarpColumns = kDv / kWarps;
  static_assert(kWarpColumns % 16 == 0);

  using State = float[kWarpColumns / 16][kDk / 8][4];      ///< accumulators of S^T [kWarpColumns, kDk]
  using Output = float[kChunk / 16][kWarpColumns / 8][4];  ///< accumulators of O [C, kWarpColumns]
};

/// The lane, computed anew at each call. The state leaves no register to keep the lane, or values derived from it, from
/// one chunk to the next.
__device__ __forceinline__ int fresh_lane() {
  return hide_from_compiler(int(lane_index()));
}

/// The warp's number in its block, computed anew at each call.
__device__ __forceinline__ int warp_index() {
  return hide_from_compiler(int(threadIdx.x)) / 32;
}

/// Sums over rows: one number for each 8 t + lane / 4, of the lane's columns.
using RowSums = float[kChunk / 8];

/// The warp's part of such sums, to shared memory. @param parts [C]
__device__ __forceinline__ void store_parts(float* parts, const RowSums& products) {
  const int lane = fresh_lane();
#pragma unroll
  for (int t = 0; t < kChunk / 8; ++t) {
    const float sum = warp_sum<4>(products[t]);
    if (lane % 4 == 0) parts[t * 8 + lane / 4] = sum;
  }
}

}  // namespace tutorial::tile
