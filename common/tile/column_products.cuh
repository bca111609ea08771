#pragma once
/// @file
/// The products of a chunk that its warps compute for columns of their own, on tensor cores:
///
///     O   = Q S                add_from_state(): what the chunks before have left
///     O  += P V                add_from_scores(): what the chunk itself adds
///     S  += K^T V              update_state()
///
/// Q, K [C, Dk], V [C, Dv] and P [C, C] are bf16 tiles in shared memory. The block's warps divide the columns of V, O
/// and S among them: warp w has kWarpColumns columns, and no other warp ever needs its part of S. So S stays in that
/// warp's registers, as accumulators in fp32, from the first chunk to the last. It is kept transposed, S^T [Dv, Dk]: the
/// accumulators of S^T += V^T K, rounded to bf16, are then the B fragment (that of the right factor) of O += Q S, and
/// the state never passes through shared memory. common/device/mma.cuh draws both layouts:
///
///     accumulator of S^T: lane (g, p) holds S^T[g][p, p+1]        g = lane / 4, p = 2 (lane % 4)
///     B fragment of S:    lane (g, p) holds S[p, p+1][g]          the same two numbers
///
/// All lanes of a warp call each function, in blocks of kThreads. Tiles are aligned to 16 bytes. A barrier must stand
/// between filling a tile and a function that reads it.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_threads.cuh"

namespace tutorial::tile {

/// O += Q S, the warp's columns. The product reads S rounded to bf16.
template <class Shape>
__device__ __forceinline__ void add_from_state(typename Shape::Output& O, const typename Shape::KeyTile& Q,
                                               const typename Shape::State& S) {
  const int lane = fresh_lane();
  const int q_unit = Q.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    std::uint32_t s[Shape::kWarpColumns / 8][2];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      const auto& tiles = S[j / 2];
      s[j][0] = pack(tiles[2 * d][j % 2 * 2], tiles[2 * d][j % 2 * 2 + 1]);
      s[j][1] = pack(tiles[2 * d + 1][j % 2 * 2], tiles[2 * d + 1][j % 2 * 2 + 1]);
    }
#pragma unroll
    for (int t = 0; t < kChunk / 16; ++t) {
      std::uint32_t q[4];
      ldmatrix_x4(q, Q.data + Q.advance(q_unit, t * 16, d * 16));
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 8; ++j) mma_m16n8k16(O[t][j], q, s[j]);
    }
  }
}

/// O += P V, the warp's columns.
template <class Shape>
__device__ __forceinline__ void add_from_scores(typename Shape::Output& O, const typename Shape::ScoreTile& P,
                                                const typename Shape::ValueTile& V) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  const int p_unit = P.unit(lane % 16, lane / 16 * 8);
  const int v_unit = V.unit(lane % 16, first_column + lane / 16 * 8);
#pragma unroll
  for (int i = 0; i < kChunk / 16; ++i) {
    std::uint32_t v[Shape::kWarpColumns / 16][4];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      ldmatrix_x4_trans(v[j], V.data + V.advance(v_unit, i * 16, j * 16));
    }
#pragma unroll
    for (int t = i; t < kChunk / 16; ++t) {  // below the diagonal, and on it
      std::uint32_t p[4];
      ldmatrix_x4(p, P.data + P.advance(p_unit, t * 16, i * 16));
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
        mma_m16n8k16(O[t][2 * j], p, {v[j][0], v[j][1]});
        mma_m16n8k16(O[t][2 * j + 1], p, {v[j][2], v[j][3]});
      }
    }
  }
}

/// S += K^T V, the warp's columns; in the registers it is S^T += V^T K.
template <class Shape>
__device__ __forceinline__ void update_state(typename Shape::State& S, const typename Shape::KeyTile& K,
                                             const typename Shape::ValueTile& V) {
  const int lane = fresh_lane(), first_column = warp_index() * Shape::kWarpColumns;
  const int k_unit = K.unit(lane % 16, lane / 16 * 8);
  const int v_unit = V.unit(lane / 16 * 8 + lane % 8, first_column + lane / 8 % 2 * 8);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) {
    std::uint32_t v[Shape::kWarpColumns / 16][4];
#pragma unroll
    for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
      ldmatrix_x4_trans(v[j], V.data + V.advance(v_unit, i, j * 16));
    }
#pragma unroll
    for (int d = 0; d < Shape::kDk / 16; ++d) {
      std::uint32_t k[4];
      ldmatrix_x4_trans(k, K.data + K.advance(k_unit, i, d * 16));
#pragma unroll
      for (int j = 0; j < Shape::kWarpColumns / 16; ++j) {
        mma_m16n8k16(S[j][2 * d], v[j], {k[0], k[1]});
        mma_m16n8k16(S[j][2 * d + 1], v[j], {k[2], k[3]});
      }
    }
  }
}

}  // namespace tutorial::tile
