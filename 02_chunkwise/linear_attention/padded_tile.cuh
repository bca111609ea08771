#pragma once
/// @file
/// A tile of bf16 rows in shared memory that ldmatrix reads without bank conflicts, because its rows are padded.
///
/// Shared memory has 32 banks of 4 bytes, and a row of 64 or 128 bf16 covers all of them, once or twice. So the 8 rows of
/// an 8 x 8 matrix, 16 bytes each, would all begin in the same bank, and ldmatrix would take 8 turns. With 16 bytes more,
/// each row begins four banks after the one before it, and the 8 rows use all 32 banks.
///
///       group of four banks        0    1    2    3    4    5    6    7
///     row 0 of 64 columns        [u0]   u1   u2   u3   u4   u5   u6   u7      [u0]: the 16 bytes of each row
///     row 1                       pad  [u0]  u1   u2   u3   u4   u5   u6      that one ldmatrix reads
///     row 2                       u7   pad  [u0]  u1   u2   u3   u4   u5
///     ...

#include <cuda_bf16.h>
#include <cuda_runtime.h>

namespace tutorial::linear_attention {

/// Rows of kColumns bf16 elements.
template <int kColumns>
struct PaddedTile {
  static constexpr int kStride = kColumns + 8;

  __nv_bfloat16* data;  ///< aligned to 16 bytes

  /// The place of an element, counted in elements from `data`.
  static __device__ __forceinline__ int unit(int row, int column) { return row * kStride + column; }
  /// The address of an element.
  __device__ __forceinline__ __nv_bfloat16* at(int row, int column) const { return data + unit(row, column); }
  /// From unit(row, column) to unit(row + rows, column + columns).
  static __device__ __forceinline__ int advance(int unit, int rows, int columns) {
    return unit + rows * kStride + columns;
  }
  /// The part of the tile from an element on.
  __device__ __forceinline__ PaddedTile from(int row, int column) const { return {at(row, column)}; }

  /// The number of elements of a tile of this number of rows.
  static constexpr int elements(int rows) { return rows * kStride; }
};

}  // namespace tutorial::linear_attention
