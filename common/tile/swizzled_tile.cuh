#pragma once
/// @file
/// A tile of bf16 rows in shared memory that ldmatrix reads without bank conflicts.
///
/// Shared memory has 32 banks of 4 bytes; a row of a multiple of 64 bf16 covers all of them. So the 8 rows of an 8 x 8
/// matrix, 16 bytes each, would all begin in the same bank, and ldmatrix would take 8 turns. The swizzle exchanges the
/// 16-byte units of a row, by xor with the number of the row: unit u of row r lies in place u ^ (r % 8).
///
///       place  0   1   2   3   4   5   6   7          (place = group of four banks)
///     row 0  [u0] u1  u2  u3  u4  u5  u6  u7
///     row 1   u1 [u0] u3  u2  u5  u4  u7  u6
///     row 2   u2  u3 [u0] u1  u6  u7  u4  u5
///     row 3   u3  u2  u1 [u0] u7  u6  u5  u4          [u0]: the 8 units that one ldmatrix reads
///     row 4   u4  u5  u6  u7 [u0] u1  u2  u3          lie in 8 different places
///     row 5   u5  u4  u7  u6  u1 [u0] u3  u2
///     row 6   u6  u7  u4  u5  u2  u3 [u0] u1
///     row 7   u7  u6  u5  u4  u3  u2  u1 [u0]
///
/// Rows of more than 8 units do the same within each 8. Unlike padding it costs no memory, and rows stay aligned.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/pack.cuh"

namespace tutorial::tile {

/// Rows of kColumns bf16 elements.
template <int kColumns>
struct SwizzledTile {
  static_assert(kColumns % 64 == 0, "a row is a multiple of 8 units of 8 elements");

  __nv_bfloat16* data;  ///< aligned to 16 bytes

  /// The place of the unit that begins with element (row, column), counted in elements from `data`; column is a
  /// multiple of 8, below kColumns.
  static __device__ __forceinline__ int unit(int row, int column) {
    return row * kColumns + ((column >> 3) ^ (row & 7)) * 8;
  }
  /// From unit(row, column) to unit(row + rows, column + columns), without the swizzle's arithmetic. In an unrolled
  /// loop the compiler knows most of it.
  /// @param rows a multiple of 8, so that the new row is swizzled like the old one
  /// @param columns a multiple of 8 that has no bit in common with `column`, so that adding it is an xor
  static __device__ __forceinline__ int advance(int unit, int rows, int columns) {
    return (unit ^ columns % 64) + (columns - columns % 64) + rows * kColumns;
  }

  /// The number of elements of a tile of this number of rows.
  static constexpr int elements(int rows) { return rows * kColumns; }
};

/// Multiplies the unit of 8 elements that begins with element (row, column) by one factor per element.
template <int kColumns>
__device__ __forceinline__ void scale_unit(const SwizzledTile<kColumns>& tile, int row, int column,
                                           const float (&factors)[8]) {
  auto& unit = *reinterpret_cast<uint4*>(tile.data + tile.unit(row, column));
  unit = make_uint4(scaled(unit.x, {factors[0], factors[1]}), scaled(unit.y, {factors[2], factors[3]}),
                    scaled(unit.z, {factors[4], factors[5]}), scaled(unit.w, {factors[6], factors[7]}));
}

}  // namespace tutorial::tile
