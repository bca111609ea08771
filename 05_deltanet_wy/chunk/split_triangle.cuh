#pragma once
/// @file
/// T of a chunk in two bf16 in one panel in shared memory, and the product with it.

#include <cuda_runtime.h>

#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

/// T in two bf16 without its upper right quarter, which is zero. The high and the low part lie side by side, so that
/// three quarters of both take 12 KB:
///
///                   units 0 to 3           units 4 to 7             T   columns  0-31  32-63
///     rows  0-31  | T_high, quarter 0    | T_low, quarter 0  |                  +-----+-----+
///     rows 32-63  | T_high, quarter 1    | T_low, quarter 1  |      rows  0-31  |  0  | zero|
///     rows 64-95  | T_high, quarter 2    | T_low, quarter 2  |      rows 32-63  |  1  |  2  |
///                                                                               +-----+-----+
struct SplitTriangle {
  static constexpr int kQuarter = tile::kChunk / 2;           ///< rows and columns of a quarter
  using Panel = tile::PanelTile<2 * kQuarter, 3 * kQuarter>;  ///< the layout above

  Panel panel;  ///< in shared memory

  /// From a unit of row r of T's first 16 columns, as the panel has it in its high part, to the same unit of another 16
  /// columns of that row. @param columns a multiple of 16 @param part 0: high, 1: low
  static __device__ __forceinline__ int advance(int unit, int columns, int part) {
    return Panel::advance(unit, columns / kQuarter * kQuarter, columns % kQuarter + part * kQuarter);
  }
};

/// v_new^T = residual^T T^T.
/// @param residual with the opposite sign
/// @param T -T
__device__ __forceinline__ void start_new_values(WarpgroupColumns& v_new, const WarpgroupFragments& residual,
                                                 const SplitTriangle& T) {
  constexpr int kQuarter = SplitTriangle::kQuarter;
  const auto parts = tile::k_along_rows(T.panel);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < (half + 1) * kQuarter; i += 16) {
      const auto high = parts.along_mn(half * kQuarter + i / kQuarter * kQuarter).along_k(i % kQuarter);
      wgmma<kQuarter>(half_of(v_new, half), residual[i / 16], high, i > 0);
      wgmma<kQuarter>(half_of(v_new, half), residual[i / 16], high.along_k(kQuarter), true);
    }
  }
}

}  // namespace tutorial::delta_rule
