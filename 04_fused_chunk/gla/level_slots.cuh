#pragma once
/// @file
/// The shared memory of `score_levels`: what its warps pass on to each other.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "04_fused_chunk/gla/score_levels.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::fused_gla {

inline constexpr int kSlots = 8;                         ///< prepared sub-chunks in shared memory
inline constexpr int kChunkSlots = kSlots / kSubChunks;  ///< the same in chunks
inline constexpr int kPipelineDepth = 2;                 ///< V of chunks in shared memory
/// Warpgroups that walk: one for each 64 columns of Dv.
template <class Shape>
constexpr int kWalkers = Shape::kDv / kWarpgroupColumns;

/// The tile that begins at a place in shared memory.
template <class Tile>
__device__ __forceinline__ Tile tile_at(unsigned char* place) {
  return Tile{reinterpret_cast<__nv_bfloat16*>(place)};
}

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
struct LevelMemory {
  using Tiles = LevelTiles<Shape::kDk>;  ///< of the levels below 16 positions
  using Rows = SixteenRows<Shape::kDk>;  ///< q, k or v of a sub-chunk
  static constexpr int kRowsBytes = Tiles::kRowsBytes;
  static constexpr int kScores = 2 * kSlots * kRowsBytes;  // offsets in bytes
  static constexpr int kLevels = kScores + kSlots / kSubChunks * int(PanelTile<64, kSubChunk>::kPanelBytes);
  static constexpr int kFirstLevels = kLevels + kSubChunks * Tiles::kBytes;
  static constexpr int kValues = kFirstLevels + kRowsBytes;
  static constexpr int kOutputs = kValues + kPipelineDepth * kWalkers<Shape> * int(PanelTile<64>::kPanelBytes);
  static constexpr int kDecays = kOutputs + kWalkers<Shape> * int(PanelTile<64>::kPanelBytes);
  static constexpr int kBytes = kDecays + kSlots * OrderedDecays<Shape::kDk>::kBytes;

  unsigned char* memory;

  /// What a preparing warp leaves of sub-chunk r, stage 0 to kChunkSlots - 1.
  __device__ __forceinline__ PreparedTiles<Shape> prepared(int stage, int r) const {
    const int slot = stage * kSubChunks + r;
    return {tile_at<Rows>(memory + 2 * slot * kRowsBytes), tile_at<Rows>(memory + (2 * slot + 1) * kRowsBytes),
            reinterpret_cast<float*>(memory + kDecays + slot * OrderedDecays<Shape::kDk>::kBytes),
            tile_at<PanelTile<64, kSubChunk>>(memory + kScores + stage * int(PanelTile<64, kSubChunk>::kPanelBytes)),
            r * kSubChunk};
  }
  /// The tiles of a preparing warp, 0 to kSubChunks - 1.
  __device__ __forceinline__ Tiles levels(int warp) const {
    return {memory + kLevels + warp * Tiles::kBytes, memory + kFirstLevels + warp * 4 * 128};
  }
  /// V of a chunk, 0 to kPipelineDepth - 1.
  __device__ __forceinline__ PanelTile<Shape::kDv> values(int stage) const {
    return tile_at<PanelTile<Shape::kDv>>(memory + kValues + stage * kWalkers<Shape> * int(PanelTile<64>::kPanelBytes));
  }
  /// O of a walking warpgroup.
  __device__ __forceinline__ PanelTile<64> output(int walker) const {
    return tile_at<PanelTile<64>>(memory + kOutputs + walker * int(PanelTile<64>::kPanelBytes));
  }
};

/// The barriers. They lie in dynamic shared memory, behind the tiles: from the address of the
/// tiles, which a walking warp has at hand, theirs is one addition away. For each use of a `__shared__` variable it would
/// read a special register.
template <class Shape>
struct LevelBarriers {
  Barrier raw_full[2 * kSubChunks];                 ///< q, k and g of a half of a sub-chunk have come
  Barrier levels_full[kSubChunks];                  ///< the rows of the levels are there
  Barrier levels_empty[kSubChunks];                 ///< they have been read
  Barrier prepared_full[kSubChunks][kChunkSlots];   ///< the tiles of a slot are there
  Barrier prepared_empty[kSubChunks][kChunkSlots];  ///< they have been read
  Barrier full[kPipelineDepth];                     ///< V has come
  Barrier empty[kPipelineDepth];                    ///< V has been read
  Barrier output_full[kWalkers<Shape>];             ///< O is there
  Barrier output_empty[kWalkers<Shape>];            ///< O has left
};

/// Bytes of the tiles and the barriers.
template <class Shape>
inline constexpr int kLevelBytes = LevelMemory<Shape>::kBytes + int(sizeof(LevelBarriers<Shape>));

/// Where a lane stores the results of prepare_half().
template <class Shape>
struct ToSlot {
  const PreparedTiles<Shape>& tiles;
  int byte;  ///< level_rows::lane_byte()

  /// Row t of q~.
  template <int kColumns>
  __device__ __forceinline__ void query(int t, const float (&x)[kColumns]) const {
    store_for_copies(level_rows::in_row<Shape::kDk>(tiles.Q, byte, t), packed_row(x));
  }
  /// Row i of k~.
  template <int kColumns>
  __device__ __forceinline__ void key(int i, const float (&x)[kColumns]) const {
    store_for_copies(level_rows::in_row<Shape::kDk>(tiles.K, byte, i), packed_row(x));
  }
  /// The decays of the whole sub-chunk.
  __device__ __forceinline__ void decay(const float (&x)[Shape::kDk / 32]) const {
    OrderedDecays<Shape::kDk>{tiles.decays}.store(x);
  }
};

}  // namespace tutorial::fused_gla
