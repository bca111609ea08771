#pragma once
/// @file
/// What the scans of the delta rule share: the steps of a run in shared memory, what one step does to a state, and
/// products of 64 rows of a matrix F with 64 columns.

#include <cuda_runtime.h>

#include "06_scan/delta_rule.hpp"
#include "06_scan/delta_rule/map_tree.hpp"
#include "06_scan/state_tile.cuh"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/memory.cuh"
#include "common/tile/float_tile.cuh"

namespace tutorial::scan {

using tile::kTileRows;
using tile::kTileThreads;

inline constexpr int kProductColumns = 64;

/// The steps of a run in shared memory.
template <int kDk>
struct Steps {
  float* k;     ///< [kLeaf, kDk]
  float* v;     ///< [kLeaf, kStateColumns]
  float* beta;  ///< [kLeaf]
  float* q;     ///< behind beta

  static constexpr int kFloats = kLeaf * (kDk + kStateColumns + 1);

  __device__ Steps() : k(dynamic_shared<float>()), v(k + kLeaf * kDk), beta(v + kLeaf * kStateColumns) {
    q = beta + kLeaf;
  }

  /// delta = beta (v - k S), S = S + k^T delta.
  /// @param has_values false: v = 0
  __device__ __forceinline__ void take(int step, StateTile<kDk>& S, bool has_values) const {
    float parts[4], read[4], delta[4];
    S.read(k + step * kDk, parts);
    sum_for_all(parts, read);
    const float4 four_v = has_values ? four(v, step * kStateColumns + first_column()) : float4{};
    const float values[4] = {four_v.x, four_v.y, four_v.z, four_v.w};
#pragma unroll
    for (int c = 0; c < 4; ++c) delta[c] = beta[step] * (values[c] - read[c]);
    S.add(k + step * kDk, delta);
  }
};

/// Starts copies of keys and beta. Past the end both are zero.
template <int kDk, bool kVector>
__device__ __forceinline__ void load_keys(const Steps<kDk>& steps, const delta_rule::FloatArguments& a, int b, int h,
                                          int t, int rows) {
  load_rows_async<kVector, kLeaf, kDk>(steps.k, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
  const int i = int(threadIdx.x);
  if (i < kLeaf) cp_async<4>(&steps.beta[i], a.beta.row(b, h, t + min(i, rows - 1)), i < rows);
}

/// Rows of F, slices of 64 columns, and a tile of the matrix that F is multiplied with.
struct Strip {
  /// A tile of the strip.
  using Tile = tile::FloatTile<64>;

  float* memory;

  /// The matrix of a slice.
  __device__ Tile F(int slice) const { return {memory + (slice + 1) * Tile::kElements}; }
  /// What the steps add.
  __device__ Tile X() const { return {memory}; }
  /// Bytes of the strip in shared memory.
  static std::size_t bytes(int Dk) { return std::size_t(ceil_div(Dk, 64) + 1) * Tile::kElements * sizeof(float); }
};

/// F X, 64 columns of X from memory.
/// @param columns that X has there
__device__ __forceinline__ void multiply_strip(float (&sums)[4][4], const Strip& strip, const float* X,
                                               std::int64_t stride, int Dk, int columns) {
  for (int d = 0; d < Dk; d += kTileRows) {
    load_tile(strip.X(), X + d * stride, stride, Dk - d, columns);
    __syncthreads();
    tile::add_product<false>(sums, strip.F(d / kTileRows), strip.X());
    __syncthreads();
  }
}

/// Calls f(row, column, sum) for those of this thread's sums that there are.
template <class F>
__device__ __forceinline__ void each_sum(const float (&sums)[4][4], int rows, int columns, F f) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int row = tile::tile_y() + 16 * r, column = tile::tile_x() * 4 + c;
      if (row < rows && column < columns) f(row, column, sums[r][c]);
    }
  }
}

}  // namespace tutorial::scan
