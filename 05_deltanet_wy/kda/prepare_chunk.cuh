#pragma once
/// @file
/// What the kernels share that prepare chunks (prepare_decayed.cuh, prepare_updates.cu): from rows in device memory to decayed
/// rows and scores. prepare_decayed.cuh explains the levels.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/block_rows.cuh"
#include "05_deltanet_wy/chunk/inverse.cuh"
#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda/pair_anchors.cuh"
#include "common/device/bulk_copy.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::kda {

using namespace delta_rule;  // blocks and their inverse
using namespace tile;        // tiles and sub-chunks

/// A chunk in shared memory.
template <int kDk>
struct ChunkMemory {
  PanelTile<kDk> Q, K, K_end;  ///< q~, k+~, k~ [64, kDk]
  float* decays;               ///< D [4, kDk]
  float* P;                    ///< the scores of each sub-chunk's own pairs [64, 16], with q as queries
  float* A;                    ///< the same with k as queries

  static constexpr int kTiles = 3 * kChunk * kDk * 2, kDecays = 4 * kSubChunks * kDk, kScores = 4 * kChunk * kSubChunk;
  static constexpr int kBytes = kTiles + kDecays + 2 * kScores;
  static_assert(InverseMemory::kBytes <= kTiles, "the inverse is computed where the rows were");

  /// @param memory kBytes, aligned to 1024
  __device__ __forceinline__ explicit ChunkMemory(unsigned char* memory)
      : ChunkMemory(reinterpret_cast<__nv_bfloat16*>(memory), reinterpret_cast<__nv_bfloat16*>(memory) + kChunk * kDk,
                    reinterpret_cast<__nv_bfloat16*>(memory) + 2 * kChunk * kDk,
                    reinterpret_cast<float*>(memory + kTiles), reinterpret_cast<float*>(memory + kTiles + kDecays)) {}
  /// @param scores two times kScores bytes
  __device__ __forceinline__ ChunkMemory(__nv_bfloat16* Q, __nv_bfloat16* K, __nv_bfloat16* K_end, float* decays,
                                         float* scores)
      : Q{Q}, K{K}, K_end{K_end}, decays(decays), P(scores), A(scores + kChunk * kSubChunk) {}
};

/// A lane's two columns of a sub-chunk's rows. Rows and columns that do not exist become zeros, which for g means gates
/// of 1; the last ones that exist are loaded in their place, because loads under a condition would be branches. Most
/// sub-chunks are whole, and their addresses take a third of the instructions.
/// @param is_whole whether all of its rows and columns exist
__device__ __forceinline__ void load_rows(RawRows& rows, const Bf16Arguments& a, int b, int h, int first, int d,
                                          bool is_whole) {
  const auto load = [&](int t, const __nv_bfloat16* q, const __nv_bfloat16* k, const float* g) {
    rows.q[t] = load_global(reinterpret_cast<const std::uint32_t*>(q));
    rows.k[t] = load_global(reinterpret_cast<const std::uint32_t*>(k));
    rows.g[t] = load_global(reinterpret_cast<const float2*>(g));
  };
  if (is_whole) {
    const __nv_bfloat16 *q = a.q.row(b, h, first) + d, *k = a.k.row(b, h, first) + d;
    const float* g = a.g.row(b, h, first) + d;
#pragma unroll
    for (int t = 0; t < kSubChunk; ++t) load(t, q + t * a.q.stride_l, k + t * a.k.stride_l, g + t * a.g.stride_l);
    return;
  }
  const bool has_columns = d < a.Dk;
  d = min(d, a.Dk - 2);
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    const int position = min(first + t, a.L - 1);
    load(t, a.q.row(b, h, position) + d, a.k.row(b, h, position) + d, a.g.row(b, h, position) + d);
    if (has_columns && first + t < a.L) continue;
    rows.q[t] = rows.k[t] = 0;
    rows.g[t] = {0, 0};
  }
}

/// Fills the rows, decays and own scores of the warp's sub-chunk.
template <int kDk>
__device__ __forceinline__ void prepare_sub_chunk(const ChunkMemory<kDk>& to, const Bf16Arguments& a, int b, int h,
                                                  int t, int sub_chunk) {
  const int first = sub_chunk * kSubChunk;
  OwnScores scores = {};
#pragma unroll 1
  for (int slice = 0; slice < kDk; slice += kSlice) {
    const int column = slice + int(lane_index()) * 2;
    RawRows rows;
    load_rows(rows, a, b, h, t + first, column, t + first + kSubChunk <= a.L && slice + kSlice <= a.Dk);
    const float2 decay = decay_rows(rows, SubChunkRows<kDk>{to.Q, to.K, to.K_end, first, slice}, scores);
    *reinterpret_cast<float2*>(to.decays + sub_chunk * kDk + column) = decay;
  }
  store_own_scores(to.P + first * kSubChunk, to.A + first * kSubChunk, scores);
}

/// f_t = 1 / sqrt(k_t . k_t + eps) of the warp's sub-chunk, or 1. In the place of rows that do not exist the last one
/// is loaded: their factors multiply zeros.
__device__ __forceinline__ void find_factors(float* factors, const Bf16Arguments& a, int b, int h, int first) {
  const int lane = int(lane_index());
  float squares[kSubChunk] = {}, factor = 1;
  if (a.normalize_keys) {
    for (int d = lane * 2; d < a.Dk; d += 64) {
#pragma unroll
      for (int t = 0; t < kSubChunk; ++t) {
        const __nv_bfloat16* row = a.k.row(b, h, min(first + t, a.L - 1));
        const float2 k = unpack(load_global(reinterpret_cast<const std::uint32_t*>(row + d)));
        squares[t] += k.x * k.x + k.y * k.y;
      }
    }
    factor = rsqrtf(sum_over_lanes<kSubChunk / 2>(squares, lane) + kKeyEps);
  }
  if (lane % 2 == 0) factors[lane / 2] = factor;
}

/// P, A = the blocks (r, 0) to (r, r) of the scores with q and with k as queries, before the factors. One warp computes
/// both, because they have the same keys.
template <int kDk>
__device__ __forceinline__ void decayed_products(BlockRow& P, BlockRow& A, const ChunkMemory<kDk>& from, int r) {
  const int lane = int(lane_index());
  const int query = from.Q.unit(r * kBlock + lane % 16, lane / 16 * 8);
  const int key = from.K_end.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll
  for (int d = 0; d < kDk; d += 16) {
    std::uint32_t of_P[4], of_A[4];
    ldmatrix_x4(of_P, from.Q.data + from.Q.advance(query, 0, d));
    ldmatrix_x4(of_A, from.K.data + from.K.advance(query, 0, d));
    float2 between[2] = {{1, 1}, {1, 1}};  // the decays of sub-chunks c + 1 to r - 1, of the lane's columns
#pragma unroll
    for (int c = kBlocks - 2; c >= 0; --c) {
      if (c >= r) continue;
      std::uint32_t k[4];
      ldmatrix_x4(k, from.K_end.data + from.K_end.advance(key, c * kBlock, d));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (c + 1 < r) {
          const float2 decay =
              *reinterpret_cast<const float2*>(from.decays + (c + 1) * kDk + d + half * 8 + lane % 4 * 2);
          between[half] = {between[half].x * decay.x, between[half].y * decay.y};
          k[half] = scaled(k[half], between[half]);
          k[half + 2] = scaled(k[half + 2], between[half]);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        mma_m16n8k16(P[c][half], of_P, {k[2 * half], k[2 * half + 1]});
        mma_m16n8k16(A[c][half], of_A, {k[2 * half], k[2 * half + 1]});
      }
    }
  }
  const auto insert_own = [&](BlockRow& scores, const float* own) {
    for_each_element(scores, r, [&](int t, int i, float& x) {
      if (i >= r * kBlock) x = own[t * kSubChunk + i - r * kBlock];
    });
  };
  insert_own(P, from.P);
  insert_own(A, from.A);
}

/// Calls put_query(row, column, unit), put_key(row, column, unit) and
/// put_end(place, row, column, unit) for each unit of 8 columns of Q+, K+ and K- of the chunk:
/// the rows with the decays between their sub-chunk and the chunk's start or end, rounded once more. Writes the chunk's
/// decay. `place` is where the unit of K- came from: the thread may overwrite it.
/// @param factors f [64]
/// @param decays [Dk]
template <int kDk, class PutQuery, class PutKey, class PutEnd>
__device__ __forceinline__ void for_each_decayed_unit(const ChunkMemory<kDk>& from, const float* factors, float* decays,
                                                      int Dk, PutQuery put_query, PutKey put_key, PutEnd put_end) {
  constexpr int kUnits = kDk / 8, kStep = kThreads / kUnits;  // rows at a time
  const int first_row = int(threadIdx.x) / kUnits, column = int(threadIdx.x) % kUnits * 8;
  if (column >= Dk) return;
  const int unit = from.Q.unit(first_row, column);
  // Row `first_row + rows`, a multiple of 8 further.
  const auto decayed = [&](const PanelTile<kDk>& tile, int rows, const float(&decay)[8], float f) {
    const uint4 x = *reinterpret_cast<const uint4*>(tile.data + tile.advance(unit, rows, 0));
    return make_uint4(scaled(x.x, {f * decay[0], f * decay[1]}), scaled(x.y, {f * decay[2], f * decay[3]}),
                      scaled(x.z, {f * decay[4], f * decay[5]}), scaled(x.w, {f * decay[6], f * decay[7]}));
  };
  float before[8] = {1, 1, 1, 1, 1, 1, 1, 1}, after[8] = {1, 1, 1, 1, 1, 1, 1, 1};
#pragma unroll
  for (int r = 0; r < kSubChunks; ++r) {  // rows of sub-chunk r from the start, and of sub-chunk s to the end
    const int s = kSubChunks - 1 - r;
#pragma unroll
    for (int i = 0; i < kSubChunk; i += kStep) {
      const int row = r * kSubChunk + i, key = s * kSubChunk + i;
      put_query(first_row + row, column, decayed(from.Q, row, before, 1));
      put_key(first_row + row, column, decayed(from.K, row, before, factors[first_row + row]));
      put_end(from.K_end.data + from.K_end.advance(unit, key, 0), first_row + key, column,
              decayed(from.K_end, key, after, factors[first_row + key]));
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      before[e] *= from.decays[r * kDk + column + e];
      after[e] *= from.decays[s * kDk + column + e];
    }
  }
  if (first_row > 0) return;
  auto* fours = reinterpret_cast<float4*>(decays + column);
  store_global(fours, make_float4(before[0], before[1], before[2], before[3]));
  store_global(fours + 1, make_float4(before[4], before[5], before[6], before[7]));
}

}  // namespace tutorial::kda
