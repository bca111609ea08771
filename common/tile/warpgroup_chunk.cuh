#pragma once
/// @file
/// More of what warpgroups do with a chunk than its four products (wgmma_products.cuh): factors in registers, a
/// warpgroup whose rows are the positions, and results that pass from one warpgroup to another.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/stmatrix.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/wgmma_products.cuh"

namespace tutorial::tile {

using ValueFragments = std::uint32_t[kChunk / 16][4];  ///< of V^T [64, C] in bf16, as fragments of A
using ScoreFragments = std::uint32_t[kChunk / 16][4];  ///< of P [C, C] in bf16, as fragments of A

/// The first or the second half of the sums of O^T = S^T Q^T, those of half of the state's rows. The second half adds
/// to the first.
/// @param half 0 or 1
template <int kDk>
__device__ __forceinline__ void start_half_of_output(WarpgroupOutput& O, const RoundedState<kDk>& s,
                                                     const PanelTile<kDk>& Q, int half) {
  const auto q = k_along_rows(Q);
#pragma unroll
  for (int d = half * kDk / 2; d < (half + 1) * kDk / 2; d += 16) wgmma<kChunk>(O, s[d / 16], q.along_k(d), d > 0);
}

/// O = P V with P in registers. Here the positions are the rows of the product, so O is not transposed.
/// @param V the warpgroup's columns
__device__ __forceinline__ void start_output_from_scores(WarpgroupOutput& O, const ScoreFragments& p,
                                                         const PanelTile<kWarpgroupColumns>& V) {
  const auto v = k_from_row_to_row(V);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kChunk>(O, p[i / 16], v.along_k(i), i > 0);
}

/// A tile of fp32 sums [C, 64] in shared memory, which one warpgroup holds transposed in its registers and another
/// holds untransposed. It is written in pairs: of neighbouring positions, which neighbouring registers hold. So its
/// rows are the columns of Dv. Position t of column c lies at t ^ 8 ((c + c / 4 % 2) % 4): the 16 lanes that write at a time
/// and the 32 lanes that read use all banks.
struct TransposedSums {
  static constexpr int kBytes = kChunk * kWarpgroupColumns * int(sizeof(float));

  float* data;

  /// One of several tiles. @param memory of the first
  __device__ __forceinline__ TransposedSums(void* memory, int stage)
      : data(static_cast<float*>(memory) + stage * (kBytes / int(sizeof(float)))) {}

  /// Writes O, from a warpgroup that has O^T.
  __device__ __forceinline__ void put(const WarpgroupOutput& O) const {
    // The permutation exchanges groups of 8 positions within 32, and is the same 8 columns further.
    const int column = wgmma_row(0), t = wgmma_column(0) ^ permutation(column);
    float* row = data + column * kChunk;
#pragma unroll
    for (int i = 0; i < kChunk / 2; i += 4) {
      float* first = row + (t ^ i % 16 * 2) + i / 16 * 32;
      *reinterpret_cast<float2*>(first) = make_float2(O[i], O[i + 1]);
      *reinterpret_cast<float2*>(first + 8 * kChunk) = make_float2(O[i + 2], O[i + 3]);
    }
  }
  /// O += the tile, each row times its factor, in a warpgroup that has O.
  /// @param factors the factors of the thread's two rows
  __device__ __forceinline__ void add_to(WarpgroupOutput& O, float2 factors) const {
    const int column = wgmma_column(0), t = wgmma_row(0);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float* upper = data + (column + j) * kChunk + (t ^ permutation(column + j));
      const float* lower = data + (column + j) * kChunk + ((t + 8) ^ permutation(column + j));
#pragma unroll
      for (int i = j; i < kChunk / 2; i += 4) {
        O[i] += factors.x * upper[i / 4 * 8 * kChunk];
        O[i + 2] += factors.y * lower[i / 4 * 8 * kChunk];
      }
    }
  }

 private:
  /// Of a column's positions.
  static __device__ __forceinline__ int permutation(int column) {
    return (column + column / 4 % 2) % 4 * 8;
  }
};

/// Writes 64 rows of bf16 to a tile, of which each warp has 16.
/// @param rows fragments of A
template <int kColumns>
__device__ __forceinline__ void put_fragments(const PanelTile<kColumns>& tile,
                                              const std::uint32_t (&rows)[kColumns / 16][4]) {
  const int lane = int(lane_index()), first_row = warp_in_group() * 16;
#pragma unroll
  for (int column = 0; column < kColumns; column += 16) {
    stmatrix(tile.data + tile.unit(first_row + lane % 16, column + lane / 16 * 8), rows[column / 16]);
  }
}

/// Where a lane begins in a tile of which its warp has 16 rows: the unit of put_rows(), and of loads of fragments of A.
__device__ __forceinline__ int first_unit_of_rows(int lane = int(lane_index())) {
  return PanelTile<kWarpgroupColumns>::unit(warp_in_group() * 16 + lane % 16, lane / 16 * 8);
}

/// Rounds O to bf16 and writes it to a tile, from a warpgroup whose rows are the positions.
/// @param unit first_unit_of_rows()
template <int kColumns>
__device__ __forceinline__ void put_rows(const PanelTile<kColumns>& tile, const float (&O)[kColumns / 2],
                                         int unit = first_unit_of_rows()) {
#pragma unroll
  for (int column = 0; column < kColumns; column += 16) {
    std::uint32_t o[4];
    wgmma_fragment(o, O, column);
    stmatrix(tile.data + tile.advance(unit, 0, column), o);
  }
}

/// The same with V^T in registers.
template <int kDk>
__device__ __forceinline__ void start_state_update(WarpgroupState<kDk>& S, const ValueFragments& V,
                                                   const PanelTile<kDk>& K) {
  const auto k = k_from_row_to_row(K);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kDk>(S, V[i / 16], k.along_k(i), true);
}

/// O^T += other^T, each position of it times its factor.
/// @param factors factors(t), t even, returns the factors of positions t and t + 1
template <class Factors>
__device__ __forceinline__ void add_positions(WarpgroupOutput& O, const WarpgroupOutput& other, Factors factors) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; i += 4) {
    const float2 two = factors(wgmma_column(i));
    O[i] += two.x * other[i];
    O[i + 1] += two.y * other[i + 1];
    O[i + 2] += two.x * other[i + 2];
    O[i + 3] += two.y * other[i + 3];
  }
}

}  // namespace tutorial::tile
