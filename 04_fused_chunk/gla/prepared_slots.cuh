#pragma once
/// @file
/// The shared memory of `warp_specialized`: what its warps pass on to each other.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/prepare_sub_chunk.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::fused_gla {

using namespace tile;

inline constexpr int kSlots = 8;          ///< prepared sub-chunks in shared memory
inline constexpr int kPipelineDepth = 2;  ///< V of chunks in shared memory
inline constexpr int kDepth = 2;          ///< O in shared memory
/// Three warpgroups prepare or walk: one walks for each 64 columns of Dv.
template <class Shape>
constexpr int kWalkers = Shape::kDv / kWarpgroupColumns;
template <class Shape>
constexpr int kPreparers = 4 * (3 - kWalkers<Shape>);  ///< warps, one sub-chunk each
template <class Shape>
constexpr int kRawDepth = kSlots / kPreparers<Shape>;  ///< slices of 64 columns of q, k and g, of each such warp

/// What a warp leaves of a sub-chunk.
template <class Shape>
struct PreparedTiles {
  PanelTile<Shape::kDk, kSubChunk> Q;  ///< q~ [16, kDk], bf16
  PanelTile<Shape::kDk, kSubChunk> K;  ///< k~ [16, kDk], bf16
  float* decays;                       ///< [kDk]
  const PanelTile<64, kSubChunk> P;    ///< shared by four sub-chunks
  int first_column;                    ///< of this one in P
};

/// Shared memory.
template <class Shape>
struct Memory {
  static constexpr int kRowsBytes = 2 * kSubChunk * Shape::kDk;  // of q~ or k~
  static constexpr int kScores = 2 * kSlots * kRowsBytes;        // offsets in bytes
  static constexpr int kRaw = kScores + kSlots / kSubChunks * int(PanelTile<64, kSubChunk>::kPanelBytes);
  static constexpr int kValues = kRaw + kSlots * int(RawTiles::kBytes);
  static constexpr int kOutputs = kValues + kPipelineDepth * kWalkers<Shape> * int(PanelTile<64>::kPanelBytes);
  static constexpr int kAnchored = kOutputs + kDepth * kWalkers<Shape> * int(PanelTile<64>::kPanelBytes);
  static constexpr int kDecays = kAnchored + kPreparers<Shape> * AnchoredTiles::kBytes;
  static constexpr int kBytes = kDecays + kSlots * Shape::kDk * int(sizeof(float));

  unsigned char* memory;

  /// The tile that begins at a byte.
  template <class Tile>
  __device__ __forceinline__ Tile tile_at(int byte) const {
    return Tile{reinterpret_cast<__nv_bfloat16*>(memory + byte)};
  }
  /// What a preparing warp leaves in a slot, 0 to kSlots - 1.
  __device__ __forceinline__ PreparedTiles<Shape> prepared(int slot) const {
    return {tile_at<PanelTile<Shape::kDk, kSubChunk>>(2 * slot * kRowsBytes),
            tile_at<PanelTile<Shape::kDk, kSubChunk>>((2 * slot + 1) * kRowsBytes),
            reinterpret_cast<float*>(memory + kDecays) + slot * Shape::kDk,
            tile_at<PanelTile<64, kSubChunk>>(kScores + slot / kSubChunks * int(PanelTile<64, kSubChunk>::kPanelBytes)),
            slot % kSubChunks * kSubChunk};
  }
  /// A slice of 64 columns of q, k and g, 0 to kSlots - 1.
  __device__ __forceinline__ RawTiles raw(int number) const {
    return RawTiles(memory + kRaw + number * int(RawTiles::kBytes));
  }
  /// What a preparing warp multiplies, 0 to kPreparers - 1.
  __device__ __forceinline__ AnchoredTiles anchored(int warp) const {
    return AnchoredTiles(memory + kAnchored + warp * AnchoredTiles::kBytes);
  }
  /// V of a chunk, 0 to kPipelineDepth - 1.
  __device__ __forceinline__ PanelTile<Shape::kDv> values(int stage) const {
    return tile_at<PanelTile<Shape::kDv>>(kValues + stage * kWalkers<Shape> * int(PanelTile<64>::kPanelBytes));
  }
  /// O of a walking warpgroup, stage 0 to kDepth - 1.
  __device__ __forceinline__ PanelTile<64> output(int walker, int stage) const {
    return tile_at<PanelTile<64>>(kOutputs + (walker * kDepth + stage) * int(PanelTile<64>::kPanelBytes));
  }
};

/// Where a lane stores the results of prepare_columns().
template <class Shape>
struct ToTiles {
  const PreparedTiles<Shape>& tiles;
  int column;

  /// Stores two elements of a row to the lane's columns.
  __device__ __forceinline__ void put(const PanelTile<Shape::kDk, kSubChunk>& tile, int row, float2 x) const {
    store_for_copies(reinterpret_cast<std::uint32_t*>(tile.data + tile.unit(row, column / 8 * 8) + column % 8),
                     pack(x.x, x.y));
  }
  /// Row t of q~.
  __device__ __forceinline__ void query(int t, float2 x) const { put(tiles.Q, t, x); }
  /// Row i of k~.
  __device__ __forceinline__ void key(int i, float2 x) const { put(tiles.K, i, x); }
  /// The decays of the whole sub-chunk.
  __device__ __forceinline__ void decay(float2 x) const { *reinterpret_cast<float2*>(tiles.decays + column) = x; }
};

/// The decays of a sub-chunk for the calling thread's rows of the state.
template <class Shape>
__device__ __forceinline__ void load_decays(StateDecays<Shape::kDk>& decays, const PreparedTiles<Shape>& tiles) {
  const float* first = tiles.decays + lane_index() % 4 * 2;
#pragma unroll
  for (int d = 0; d < Shape::kDk; d += 8) decays[d / 8] = *reinterpret_cast<const float2*>(first + d);
}

}  // namespace tutorial::fused_gla
