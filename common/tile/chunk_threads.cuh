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

}  // namespace tutorial::tile
