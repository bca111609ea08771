#pragma once
/// @file
/// What the kernels for all gradients of a chunk share: `warpgroup_gradients`, which has the idea, and the stage after
/// it, which lays its tiles out in another way.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "03_gla/gla_backward/gradients_of_chunks.hpp"
#include "03_gla/gla_backward/pairs_of_sub_chunk.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/tensor_map.hpp"
#include "common/device/warp.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/warpgroup_chunk.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::gla {

using namespace tile;

inline constexpr int kSliceWidth = 64;  // columns of a slice of pairs: two per lane
inline constexpr int kWarps = kWarpgroup / 32;
inline constexpr unsigned kKeysAreRead = 1;  // named barrier: k~ is no longer needed

/// What bulk copies load and store. A kernel takes them as `const __grid_constant__ GradientMaps`.
struct GradientMaps {
  TensorMap prepared_q, prepared_k, v, d_o, S, dS;
  TensorMap q, k;            ///< `anchored_pairs` does not need them
  TensorMap dq, dk, dv, dg;  ///< tiles of a sub-chunk
};

/// Rows of the table of decays. The first kSubChunks are those of the sub-chunks; kOne is 1 in all columns.
enum DecayRow { kFirstTwo = 4, kLastTwo, kLastThree, kOne, kDecayRows };  // D_1 D_2, D_2 D_3, D_1 D_2 D_3

/// The block's part of a state in memory that multiply_states() multiplies: units of eight columns of S^T.
template <int kD>
struct StateUnits {
  static constexpr int kInRow = kD / 8, kRows = kWarpgroup / kInRow;  ///< units of a row, rows at a time
  uint4 units[kD / kRows];

  /// Loads them. Where an element does not exist it is another one, which meets zeros.
  __device__ __forceinline__ StateUnits(const __nv_bfloat16* state, int Dk, int Dv) {
    const int thread = int(threadIdx.x), d = min(thread % kInRow * 8, Dk - 8);
#pragma unroll
    for (int i = 0; i < kD / kRows; ++i) {
      const int j = min(thread / kInRow + i * kRows, Dv - 1);
      units[i] = load_for_update(reinterpret_cast<const uint4*>(state + j * Dk + d));
    }
  }
};

/// The sums of the rows of S . S', in kWarps parts, with what lies in shared memory for S'. It is W / scale, but in
/// `one_anchor`.
template <template <int> class Tiles, int kD>
__device__ __forceinline__ void multiply_states(const StateUnits<kD>& S, const Tiles<kD>& tiles) {
  constexpr int kInRow = StateUnits<kD>::kInRow, kRows = StateUnits<kD>::kRows;
  const int thread = int(threadIdx.x), lane = thread % 32, unit = thread % kInRow * 8;
  float parts[8] = {};
#pragma unroll
  for (int i = 0; i < kD / kRows; ++i) {
    const uint4 x = S.units[i];
    const uint4 y =
        *reinterpret_cast<const uint4*>(tiles.state.data + tiles.state.unit(thread / kInRow + i * kRows, unit));
    const std::uint32_t of_x[] = {x.x, x.y, x.z, x.w}, of_y[] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 s = unpack(of_x[e]), ds = unpack(of_y[e]);
      parts[2 * e] += s.x * ds.x;
      parts[2 * e + 1] += s.y * ds.y;
    }
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) {
#pragma unroll
    for (int flipped = kInRow; flipped < 32; flipped *= 2) parts[e] += shuffle_xor(parts[e], flipped);
    if (lane < kInRow) tiles.restart[thread / 32 * kD + unit + e] = parts[e];
  }
}

/// The decays of a chunk's sub-chunks in one column, that of the thread.
struct ColumnDecays {
  float D[kSubChunks];
};

/// Loads them; 1 in columns that do not exist. @param decays of the sub-chunks, [kSubChunks, Dk]
template <int kD>
__device__ __forceinline__ ColumnDecays load_decays(const float* decays, int Dk) {
  const int d = int(threadIdx.x);
  ColumnDecays of_column;
#pragma unroll
  for (int r = 0; r < kSubChunks; ++r) of_column.D[r] = d < Dk ? load_for_update(decays + r * Dk + d) : 1.0f;
  return of_column;
}

/// Computes the table of decays from those of the sub-chunks.
template <template <int> class Tiles, int kD>
__device__ __forceinline__ void fill_decays(const Tiles<kD>& tiles, const ColumnDecays& of_column) {
  const int d = int(threadIdx.x);
  if (d >= kD) return;
  const auto& D = of_column.D;
#pragma unroll
  for (int r = 0; r < kSubChunks; ++r) tiles.decays[r * kD + d] = D[r];
  tiles.decays[kFirstTwo * kD + d] = D[1] * D[2];
  tiles.decays[kLastTwo * kD + d] = D[2] * D[3];
  tiles.decays[kLastThree * kD + d] = D[1] * D[2] * D[3];
  tiles.decays[kOne * kD + d] = 1;
}

/// A warp's 16 keys as fragments of A.
template <int kD>
using KeyFragments = std::uint32_t[kD / 16][4];

/// The warp's 16 keys, columns d to d + 15, times a row of the table of decays, as a fragment of A.
template <template <int> class Tiles, int kD>
__device__ __forceinline__ void load_keys(std::uint32_t (&part)[4], const Tiles<kD>& tiles, int decay_row, int d) {
  const int lane = fresh_lane(), unit = tiles.k.unit(warp_in_group() * 16 + lane % 16, lane / 16 * 8);
  const float* decays = tiles.decays + decay_row * kD + lane % 4 * 2 + d;
  ldmatrix_x4(part, tiles.k.data + tiles.k.advance(unit, 0, d));
#pragma unroll
  for (int i = 0; i < 4; ++i) part[i] = scaled(part[i], *reinterpret_cast<const float2*>(decays + i / 2 * 8));
}

/// The same of all columns.
template <template <int> class Tiles, int kD>
__device__ __forceinline__ void load_keys(KeyFragments<kD>& keys, const Tiles<kD>& tiles, int decay_row) {
#pragma unroll
  for (int d = 0; d < kD; d += 16) load_keys(keys[d / 16], tiles, decay_row, d);
}

/// sums = X S^T, X the rows of the chunk.
template <int kD>
__device__ __forceinline__ void start_reads(float (&sums)[kD / 2], const PanelTile<kD>& X,
                                            const PanelTile<kD, kD>& state) {
  const auto x = k_along_rows(X);
  const auto s = k_from_row_to_row(state);
#pragma unroll
  for (int j = 0; j < kD; j += 16) wgmma<kD>(sums, x.along_k(j), s.along_k(j), j > 0);
}

/// sums += X Y, Y the 16 rows of sub-chunk s of a tile.
template <int kD>
__device__ __forceinline__ void start_sub_chunk(float (&sums)[kD / 2], const std::uint32_t (&X)[4],
                                                const PanelTile<kD>& Y, int s) {
  wgmma<kD>(sums, X, k_from_row_to_row(Y).along_k(s * kSubChunk), true);
}

/// Multiplies each column by a decay.
template <int kD>
__device__ __forceinline__ void decay_columns(float (&sums)[kD / 2], const float* decays) {
  decays += fresh_lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < kD / 2; i += 4) {
    const float2 two = *reinterpret_cast<const float2*>(decays + i * 2);
    sums[i] *= two.x;
    sums[i + 1] *= two.y;
    sums[i + 2] *= two.x;
    sums[i + 3] *= two.y;
  }
}

/// 16 columns of scores as a factor, or zeros. @param k the first column
template <int kSums>
__device__ __forceinline__ void to_factor(std::uint32_t (&factor)[4], const float (&scores)[kSums], int k,
                                          bool counts) {
  wgmma_fragment(factor, scores, k);
#pragma unroll
  for (std::uint32_t& two : factor) two = counts ? two : 0u;
}

/// Writes A or B, times a factor. Called by all warps, each for its sub-chunk.
template <int kD>
__device__ __forceinline__ void store_reads(const FloatPanels<kChunk, kD>& tile, const float (&sums)[kD / 2],
                                            float factor) {
  const int lane = fresh_lane(), row = warp_in_group() * 16 + lane / 4;
  float* const data = const_cast<float*>(tile.data);
  const int place = tile.place(row, lane % 4 * 2);
#pragma unroll
  for (int i = 0; i < kD / 2; i += 4) {
    float* two = data + tile.advance(place, i * 2);
    *reinterpret_cast<float2*>(two) = make_float2(factor * sums[i], factor * sums[i + 1]);
    *reinterpret_cast<float2*>(two + 8 * 32) = make_float2(factor * sums[i + 2], factor * sums[i + 3]);
  }
}

/// Asks for a sub-chunk's rows of a tensor, for the loads that come later.
/// @param rows of them that exist
template <int kD, class T>
__device__ __forceinline__ void prefetch_rows(const View<const T>& tensor, int b, int h, int first, int rows,
                                              int columns) {
  constexpr int kLine = 128 / sizeof(T), kLines = kD / kLine;  // elements of a line of the cache, lines of a row
  const int lane = fresh_lane(), d = lane % kLines * kLine;
#pragma unroll 1
  for (int i = lane / kLines; i < min(rows, kSubChunk); i += 32 / kLines) {
    if (d < columns) prefetch_global(tensor.row(b, h, first + i) + d);
  }
}

/// A tensor in fp32 as one of bf16 with twice as many elements, for stores.
inline View<__nv_bfloat16> as_bf16_pairs(const View<float>& view) {
  return {reinterpret_cast<__nv_bfloat16*>(view.data), 2 * view.stride_b, 2 * view.stride_h, 2 * view.stride_l};
}

/// Requires: an empty warpgroup_gradients_backward_unsupported().
template <int kD>
inline GradientMaps gradient_maps(const Bf16BackwardArguments& a, const Between& x) {
  const TensorSizes keys = tensor_sizes(a, a.Dk), values = tensor_sizes(a, a.Dv), floats = tensor_sizes(a, 2 * a.Dk);
  const TensorSizes rows{a.B, a.H, std::int64_t(kChunk) * x.prepared.N, a.Dk};
  const TensorSizes states{std::int64_t(a.B) * a.H, x.prepared.N + 1, a.Dv, a.Dk};
  const auto prepared = [&](const __nv_bfloat16* data) {
    return tile_map(packed(data, rows.H, rows.L, rows.D), rows, kChunk);
  };
  const auto state = [&](const __nv_bfloat16* data) {
    return tile_map(packed(data, states.H, states.L, states.D), states, kD);
  };
  return {prepared(x.prepared.q),
          prepared(x.prepared.k),
          tile_map(a.v, values, kChunk),
          tile_map(a.d_o, values, kChunk),
          state(x.S),
          state(x.dS),
          tile_map(a.q, keys, kChunk),
          tile_map(a.k, keys, kChunk),
          tile_map(a.dq, keys, kSubChunk),
          tile_map(a.dk, keys, kSubChunk),
          tile_map(a.dv, values, kSubChunk),
          tile_map(as_bf16_pairs(a.dg), floats, kSubChunk)};
}

}  // namespace tutorial::gla
