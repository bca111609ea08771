#pragma once
/// @file
/// A step of the walk from sub-chunk to sub-chunk, which chapter 03's `subchunk_walk` explains.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/tile/decayed_tiles.cuh"

namespace tutorial::tile {

/// One sub-chunk: S = diag(decay) S + K^T V, the warp's columns, and with kOutputs before that O = Q S + P V. Rows are
/// counted from the chunk's first. All lanes of a warp call it, after the tiles are filled.
/// @param first_row of the sub-chunk: a multiple of 16
/// @tparam kScoreParts the number of parts whose sum is P; the first parts of all sub-chunks lie before all second ones
template <class Shape, bool kOutputs, int kScoreParts = 1>
__device__ __forceinline__ void walk_sub_chunk(typename Shape::State& S, float (&O)[Shape::kWarpColumns / 8][4],
                                               const DecayedTiles<Shape>& tiles, int first_row) {
  constexpr int kTiles = Shape::kWarpColumns / 16;
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  // As B fragments of V, [k][n] = [position][column], these are v[j][0, 1] and v[j][2, 3]; as an A fragment of V^T
  // v[j][0, 2, 1, 3]: a lane holds the same numbers.
  std::uint32_t v[kTiles][4];
  const int v_unit = tiles.V.unit(lane % 16, first_column + lane / 16 * 8);
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    ldmatrix_x4_trans(v[j], tiles.V.data + tiles.V.advance(v_unit, 0, j * 16) + first_row * Shape::kDv);
  }
  if constexpr (kOutputs) {
#pragma unroll
    for (int part = 0; part < kScoreParts; ++part) {
      std::uint32_t p[4];
      tiles.load_own_scores(p, part * kSubChunks + first_row / kSubChunk);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        mma_m16n8k16(O[2 * j], p, {v[j][0], v[j][1]});
        mma_m16n8k16(O[2 * j + 1], p, {v[j][2], v[j][3]});
      }
    }
  }
  const int q_unit = tiles.Q.unit(lane % 16, lane / 16 * 8);
  const float* decays = tiles.decays + first_row / kSubChunk * Shape::kDk + lane % 4 * 2;
#pragma unroll
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    if constexpr (kOutputs) {
      std::uint32_t q[4];
      ldmatrix_x4(q, tiles.Q.data + tiles.Q.advance(q_unit, 0, d * 16) + first_row * Shape::kDk);
#pragma unroll
      for (int j = 0; j < 2 * kTiles; ++j) {
        const auto& s = S[j / 2];
        const int i = j % 2 * 2;
        mma_m16n8k16(O[j], q, {pack(s[2 * d][i], s[2 * d][i + 1]), pack(s[2 * d + 1][i], s[2 * d + 1][i + 1])});
      }
    }
    std::uint32_t k[4];
    ldmatrix_x4_trans(k, tiles.K.data + tiles.K.advance(q_unit, 0, d * 16) + first_row * Shape::kDk);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 decay = *reinterpret_cast<const float2*>(decays + d * 16 + half * 8);
#pragma unroll
      for (int j = 0; j < kTiles; ++j) {
        float(&s)[4] = S[j][2 * d + half];
        s[0] *= decay.x;
        s[1] *= decay.y;
        s[2] *= decay.x;
        s[3] *= decay.y;
        mma_m16n8k16(s, {v[j][0], v[j][2], v[j][1], v[j][3]}, {k[2 * half], k[2 * half + 1]});
      }
    }
  }
}

/// Writes O [16, kWarpColumns], times a factor, in bf16 to the warp's columns of V, from first_row on.
template <class Shape>
__device__ __forceinline__ void put_output(const typename Shape::ValueTile& V,
                                           const float (&O)[Shape::kWarpColumns / 8][4], int first_row, float factor) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  __syncwarp();
  const int corner = V.unit(lane / 4, first_column);
#pragma unroll
  for (int t = 0; t < 2; ++t) {
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      *reinterpret_cast<std::uint32_t*>(V.data + V.advance(corner, t * 8, j * 8) + first_row * Shape::kDv +
                                        lane % 4 * 2) = pack(factor * O[j][2 * t], factor * O[j][2 * t + 1]);
    }
  }
}

}  // namespace tutorial::tile
