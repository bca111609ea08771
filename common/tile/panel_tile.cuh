#pragma once
/// @file
/// A tile of bf16 rows in shared memory as bulk copies (bulk_copy.cuh) write it and warpgroup products (wgmma.cuh) read
/// it: panels of 64 columns, one after the other, each a SwizzledTile<64>.
///
///     SwizzledTile<128>    row 0: columns 0 ... 127      PanelTile<128>    panel 0, row 0: columns  0 ...  63
///                          row 1: columns 0 ... 127                                 row 1: columns  0 ...  63
///                          ...                                             ...
///                                                                          panel 1, row 0: columns 64 ... 127
///                                                                          ...

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "common/tile/chunk_shape.cuh"
#include "common/tile/swizzled_tile.cuh"

namespace tutorial::tile {

/// The C rows of a chunk, or kRows, of kColumns bf16 elements each. Has the members unit() and advance() of
/// SwizzledTile.
template <int kColumns, int kRows = kChunk>
struct PanelTile {
  static_assert(kColumns % 64 == 0, "whole panels");
  static_assert(kRows % 8 == 0, "the permutation repeats after eight rows");

  __nv_bfloat16* data;  ///< aligned to 1024 bytes

  static constexpr int kPanelElements = kRows * 64;                                ///< from one panel to the next
  static constexpr unsigned kPanelBytes = kPanelElements * sizeof(__nv_bfloat16);  ///< the same in bytes

  /// As SwizzledTile::unit().
  static __device__ __forceinline__ int unit(int row, int column) {
    return column / 64 * kPanelElements + SwizzledTile<64>::unit(row, column % 64);
  }
  /// As SwizzledTile::advance().
  static __device__ __forceinline__ int advance(int unit, int rows, int columns) {
    return (unit ^ columns % 64) + columns / 64 * kPanelElements + rows * 64;
  }
};

/// A ChunkShape whose tiles consist of panels.
template <int kDk, int kDv>
struct PanelShape : ChunkShape<kDk, kDv> {
  using KeyTile = PanelTile<kDk>;    ///< Q or K, [C, Dk]
  using ValueTile = PanelTile<kDv>;  ///< V or O, [C, Dv]
};

}  // namespace tutorial::tile
