#pragma once
/// @file
/// A tile of fp32 rows in shared memory as bulk copies write it: panels of 32 columns, one after the other. A bulk copy
/// treats a row of 32 floats as one of 64 elements of 16 bits. So the tensor map is that of a bf16 tensor of twice the
/// width, and the units of 16 bytes are permuted as in a SwizzledTile<64>.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "common/device/bulk_copy.cuh"
#include "common/device/tensor_map.hpp"
#include "common/view.hpp"

namespace tutorial::tile {

/// kRows rows of kColumns floats.
template <int kRows, int kColumns>
struct FloatPanels {
  static_assert(kColumns % 32 == 0, "whole panels");

  const float* data;  ///< aligned to 1024 bytes

  static constexpr unsigned kLoadedBytes = kColumns / 32 * tile_bytes(kRows);  ///< bytes that a barrier expects
  /// From one panel to the next: a bulk copy begins at a multiple of kTileAlignment.
  static constexpr int kPanelElements = std::max(kRows, 8) * 32;
  static constexpr int kBytes = kColumns / 32 * kPanelElements * int(sizeof(float));  ///< of shared memory

  /// Where an element lies, counted from `data`; the elements up to the next multiple of 4 columns follow it.
  static __device__ __forceinline__ int place(int row, int column) {
    return column / 32 * kPanelElements + row * 32 + ((column / 4 % 8) ^ (row % 8)) * 4 + column % 4;
  }
  /// From place(row, column) to place(row, column + columns), as SwizzledTile::advance(). Both are multiples of 4, or
  /// `columns` alone is and `column` has no bit in common with it.
  static __device__ __forceinline__ int advance(int place, int columns) {
    return (place ^ columns % 32) + columns / 32 * kPanelElements;
  }
};

/// An fp32 tensor as a bf16 tensor with twice as many elements. Only its bytes are ever copied.
inline View<const __nv_bfloat16> as_bf16_pairs(const View<const float>& view) {
  return {reinterpret_cast<const __nv_bfloat16*>(view.data), 2 * view.stride_b, 2 * view.stride_h, 2 * view.stride_l};
}

/// Why bulk copies cannot load tiles of this number of rows of an fp32 tensor; empty if they can.
/// @param sizes in floats
inline std::string why_floats_are_not_mapped(const View<const float>& view, TensorSizes sizes, int rows) {
  sizes.D *= 2;
  return why_not_mapped(as_bf16_pairs(view), sizes, rows);
}

/// The map of an fp32 tensor for tiles of 32 columns. Requires: an empty why_floats_are_not_mapped().
inline TensorMap float_tile_map(const View<const float>& view, TensorSizes sizes, int rows) {
  sizes.D *= 2;
  return tile_map(as_bf16_pairs(view), sizes, rows);
}

/// Starts to load a tile's panels. Called by one thread.
/// @param barrier expects kLoadedBytes
/// @param origin the place in the tensor where the tile begins; its column counts floats
template <int kRows, int kColumns>
__device__ __forceinline__ void load_panels(const FloatPanels<kRows, kColumns>& tile, const TensorMap& map,
                                            Barrier& barrier, TileOrigin origin) {
  origin.column *= 2;
#pragma unroll
  for (int panel = 0; panel < kColumns / 32; ++panel) {
    load_tile(map, const_cast<float*>(tile.data) + panel * tile.kPanelElements, barrier, origin);
    origin.column += 64;
  }
}

}  // namespace tutorial::tile
