#pragma once
/// @file
/// The tiles of a chunk in shared memory, beside what the warps hold in registers.

#include "common/tile/chunk_threads.cuh"
#include "common/tile/swizzled_tile.cuh"

namespace tutorial::tile {

/// The part of a head that one block holds: all of Dk <= kDk, and kDv columns of Dv.
template <int kDk, int kDv>
struct ChunkShape : ChunkRegisters<kDk, kDv> {
  using KeyTile = SwizzledTile<kDk>;       ///< Q or K, [C, Dk]
  using ValueTile = SwizzledTile<kDv>;     ///< V or O, [C, Dv]
  using ScoreTile = SwizzledTile<kChunk>;  ///< P, [C, C]
};

}  // namespace tutorial::tile
