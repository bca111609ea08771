#pragma once
/// @file
/// The long way from q, k and g of a chunk to Q+, K+, K-, P and A, for gates of any strength: two cuts between two
/// sub-chunks of 16 positions, as in prepare_decayed.cuh, and rows that stay where they are in shared memory.
///
/// With b_t the running sum of g from the first position of a sub-chunk on, and b_e at its last one,
///
///     q~_t = exp(b_t) q_t,   k+~_t = exp(b_t) k_t,   k~_i = exp(b_e - b_i) k_i
///
/// A pair of the same sub-chunk needs exp(b_t - b_i). That is one anchor for 16 positions (chunk_anchor.cuh says how):
/// the block on the diagonal is one product, like the blocks to its left, and on their way to the tensor cores the keys
/// are multiplied by exp(-b_e) in the place of decays of sub-chunks in between. Here the bound is 2^-116, for gates
/// down to exp(-5) at all 16 positions. A channel that forgets even more makes its warp go step by step for this
/// sub-chunk and 64 columns: from position to position it decays all keys, and adds up products in fp32. All factors
/// are products of gates then, at most 1. That takes several times as long, and is right for any g <= 0.
///
/// Source: arXiv 2510.26692, section 3.1.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/inverse.cuh"
#include "05_deltanet_wy/chunk/warpgroup_inverse.cuh"
#include "05_deltanet_wy/kda/chunk_slot.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {

namespace sub_chunk_anchors {

using tile::kSubChunk;

/// x *= y
__device__ __forceinline__ void multiply(float2& x, float2 y) {
  x.x *= y.x;
  x.y *= y.y;
}

/// Where a lane's two columns of the rows of a sub-chunk lie.
template <int kDk>
class LaneColumns {
 public:
  /// @param column the first of 64
  __device__ __forceinline__ LaneColumns(const ChunkSlot<kDk>& slot, int r, int column)
      : slot_(slot), first_row_(r * kSubChunk), column_(column + int(lane_index()) * 2) {}

  /// Row t of q or q~, two bf16.
  __device__ __forceinline__ std::uint32_t& q(int t) const { return of(slot_.Q(), t); }
  /// Row t of k or k+~.
  __device__ __forceinline__ std::uint32_t& k(int t) const { return of(slot_.K(), t); }
  /// Row t of k~, where g lay.
  __device__ __forceinline__ std::uint32_t& k_end(int t) const { return of(slot_.K_end(), t); }
  /// Row t of g.
  __device__ __forceinline__ float2 g(int t) const {
    const auto g = slot_.g();
    return *reinterpret_cast<const float2*>(g.data + g.place(first_row_ + t, column_));
  }

 private:
  __device__ __forceinline__ std::uint32_t& of(const tile::PanelTile<kDk>& tile, int t) const {
    return *reinterpret_cast<std::uint32_t*>(tile.data + tile.unit(first_row_ + t, column_ / 8 * 8) + column_ % 8);
  }

  ChunkSlot<kDk> slot_;
  int first_row_, column_;
};

/// The way for gates of ordinary size.
/// @param end b_e
template <int kDk>
__device__ __forceinline__ void decay_by_sums(const LaneColumns<kDk>& rows, float2 end) {
  constexpr int kRows = 4;  // at a time
  float2 b{0, 0};
#pragma unroll 1
  for (int first = 0; first < kSubChunk; first += kRows) {
    float2 g[kRows];
    std::uint32_t q[kRows], k[kRows];
#pragma unroll
    for (int t = 0; t < kRows; ++t) g[t] = rows.g(first + t), q[t] = rows.q(first + t), k[t] = rows.k(first + t);
    __syncwarp();  // all lanes have read them: k~ comes where g lies
#pragma unroll
    for (int t = 0; t < kRows; ++t) {
      add_gates(b, g[t]);
      const float2 from_start{tile::ex2(b.x), tile::ex2(b.y)}, to_end{tile::ex2(end.x - b.x), tile::ex2(end.y - b.y)};
      const float2 of_k = unpack(k[t]);
      store_for_copies(&rows.q(first + t), scaled(q[t], from_start));
      store_for_copies(&rows.k(first + t), pack(of_k.x * from_start.x, of_k.y * from_start.y));
      store_for_copies(&rows.k_end(first + t), pack(of_k.x * to_end.x, of_k.y * to_end.y));
    }
  }
}

/// The way for any gates. All lanes have read what they need of g before k~ takes its place.
/// @param own the lane's part of the scores: row t, column lane / 2; of P in even lanes, of A in odd ones
/// @return exp(b_e)
template <int kDk>
__device__ __forceinline__ float2 decay_step_by_step(const LaneColumns<kDk>& rows, float (&own)[kSubChunk]) {
  const int lane = int(lane_index());
  float2 keys[kSubChunk], decay{1, 1};
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    const float2 g = rows.g(t), gate{tile::gate(g.x), tile::gate(g.y)}, q = unpack(rows.q(t));
    const float2 k = keys[t] = unpack(rows.k(t));
    multiply(decay, gate);
#pragma unroll
    for (int i = 0; i < t; ++i) multiply(keys[i], gate);
#pragma unroll 1  // both at once would take too many registers
    for (int of = 0; of < 2; ++of) {
      const float2 query{of == 0 ? q.x : k.x, of == 0 ? q.y : k.y};
      float parts[kSubChunk] = {};
#pragma unroll
      for (int i = 0; i <= t; ++i) parts[i] = query.x * keys[i].x + query.y * keys[i].y;
      const float sum = tile::sum_over_lanes<kSubChunk / 2>(parts, lane);
      own[t] += lane % 2 == of ? sum : 0.0f;
    }
    store_for_copies(&rows.q(t), pack(q.x * decay.x, q.y * decay.y));
    store_for_copies(&rows.k(t), pack(k.x * decay.x, k.y * decay.y));
  }
  __syncwarp();  // all lanes have read g
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) store_for_copies(&rows.k_end(t), pack(keys[t].x, keys[t].y));
  return decay;
}

}  // namespace sub_chunk_anchors

/// Makes rows q~, k+~ and k~ of sub-chunk r from those of q, k and g. One warp does it.
template <int kDk>
__device__ __forceinline__ void decay_sub_chunk(const ChunkSlot<kDk>& slot, int r) {
  using namespace sub_chunk_anchors;
  constexpr float kLeast = -116;
  const int lane = int(lane_index());
  float own[kSubChunk] = {};
  float2 decays[2], growths[2];
  bool has_own = false;
#pragma unroll 1
  for (int slice = 0; slice < kDk / 64; ++slice) {
    const LaneColumns<kDk> rows(slot, r, slice * 64);
    float2 end{0, 0};
#pragma unroll
    for (int t = 0; t < kSubChunk; ++t) add_gates(end, rows.g(t));
    float2 decay, growth;
    if (__all_sync(kAllLanes, min(end.x, end.y) >= kLeast)) {
      decay_by_sums(rows, end);
      decay = {tile::ex2(end.x), tile::ex2(end.y)};
      growth = {tile::ex2(-end.x), tile::ex2(-end.y)};
    } else {
      decay = decay_step_by_step(rows, own);
      growth = {0, 0};
      has_own = true;
    }
    if (slice == 0) decays[0] = decay, growths[0] = growth;
    decays[1] = decay, growths[1] = growth;
  }
  fence_async_proxy();  // decay_to_ends() does not write all rows again
  __syncwarp();         // all lanes have read g, whose rows of the sub-chunk lay where its decays will lie
#pragma unroll
  for (int slice = 0; slice < kDk / 64; ++slice) {
    reinterpret_cast<float2*>(slot.decays(r) + slice * 64)[lane] = decays[slice];
    reinterpret_cast<float2*>(slot.growths(r) + slice * 64)[lane] = growths[slice];
  }
  if (lane == 0) slot.has_own_scores(r) = has_own;
  if (!has_own) return;
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) slot.own_scores(r, lane % 2)[t * kSubChunk + lane / 2] = own[t];
}

/// The blocks (r, 0) to (r, r) of P or A, without scale and beta; what is above the diagonal has no meaning. One warp
/// computes them.
/// @param sums zeros
/// @param of 0: P, from q~; 1: A, from k+~
/// @param r the same in all lanes, and the compiler knows it
template <int kDk>
__device__ __forceinline__ void decayed_scores(delta_rule::BlockRow& sums, const ChunkSlot<kDk>& slot, int r, int of) {
  using delta_rule::kBlock, delta_rule::kBlocks;
  const int lane = int(lane_index());
  const tile::PanelTile<kDk> queries = of == 0 ? slot.Q() : slot.K(), keys = slot.K_end();
  const int query = queries.unit(r * kBlock + lane % 16, lane / 16 * 8);
  const int key = keys.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
  const float *growths = slot.growths(r) + lane % 4 * 2, *decays = slot.decays(0) + lane % 4 * 2;
#pragma unroll 1  // instructions have to be fetched, too: see gated_delta_rule/gated_matrices.cuh
  for (int d = 0; d < kDk; d += 16) {
    std::uint32_t q[4], k[kBlocks][4];
    float2 growth[2], decay[kBlocks - 2][2];  // of the lane's columns; of sub-chunks 1 and 2
    ldmatrix_x4(q, queries.data + queries.advance(query, 0, d));
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) ldmatrix_x4(k[c], keys.data + keys.advance(key, c * kBlock, d));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      growth[half] = *reinterpret_cast<const float2*>(growths + d + half * 8);
#pragma unroll
      for (int c = 0; c < kBlocks - 2; ++c) {
        decay[c][half] = *reinterpret_cast<const float2*>(decays + (c + 1) * (slot.kOfSubChunk / 4) + d + half * 8);
      }
    }
#pragma unroll
    for (int c = kBlocks - 1; c >= 0; --c) {
      if (c > r) continue;
      if (c != r - 1) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          // To the left of the neighbour: the decays of sub-chunks c + 1 to r - 1.
          float2 factor = growth[half];
          if (c < kBlocks - 2 && c < r) factor = decay[c][half];
          if (c < kBlocks - 3 && c < r - 2) sub_chunk_anchors::multiply(factor, decay[c + 1][half]);
          k[c][half] = scaled(k[c][half], factor);
          k[c][half + 2] = scaled(k[c][half + 2], factor);
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) mma_m16n8k16(sums[c][half], q, {k[c][2 * half], k[c][2 * half + 1]});
    }
  }
  if (!slot.has_own_scores(r)) return;
  const float* own = slot.own_scores(r, of);
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c != r) continue;
    delta_rule::for_each_of_block(sums[c], [&](int row, int column, float& x) { x += own[row * kBlock + column]; });
  }
}

/// Makes Q+, K+ and K- of rows q~, k+~ and k~: with the decays between their sub-chunk and the chunk's start or end. A
/// warpgroup does it.
/// @param thread of the warpgroup
template <int kDk>
__device__ __forceinline__ void decay_to_ends(const ChunkSlot<kDk>& slot, int thread) {
  using tile::kSubChunk, tile::kSubChunks;
  constexpr int kUnits = kDk / 8, kStep = tile::kWarpgroup / kUnits;  // rows at a time
  const int first_row = thread / kUnits, column = thread % kUnits * 8;
  const int unit = tile::PanelTile<kDk>::unit(first_row, column);
  const auto decayed = [](uint4 x, const float(&decay)[8]) {
    return make_uint4(scaled(x.x, {decay[0], decay[1]}), scaled(x.y, {decay[2], decay[3]}),
                      scaled(x.z, {decay[4], decay[5]}), scaled(x.w, {decay[6], decay[7]}));
  };
  // All loads before all stores, as in chunk_anchor.cuh.
  const auto decay_rows = [&](const tile::PanelTile<kDk>& tile, int row, const float(&decay)[8]) {
    uint4 x[kSubChunk / kStep];
    const auto place = [&](int i) {
      return reinterpret_cast<uint4*>(tile.data + tile.advance(unit, row + i * kStep, 0));
    };
#pragma unroll
    for (int i = 0; i < kSubChunk / kStep; ++i) x[i] = *place(i);
#pragma unroll
    for (int i = 0; i < kSubChunk / kStep; ++i) store_for_copies(place(i), decayed(x[i], decay));
  };
  const auto multiply = [&](float(&factors)[8], const float* decays) {
#pragma unroll
    for (int e = 0; e < 8; e += 4) {
      const float4 four = *reinterpret_cast<const float4*>(decays + column + e);
      factors[e] *= four.x, factors[e + 1] *= four.y, factors[e + 2] *= four.z, factors[e + 3] *= four.w;
    }
  };
  float before[8] = {1, 1, 1, 1, 1, 1, 1, 1}, after[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  // Rows of sub-chunk r from the start, and of sub-chunk s to the end. The first has none before it, the last none
  // behind it.
#pragma unroll 1
  for (int r = 1; r < kSubChunks; ++r) {
    const int s = kSubChunks - 1 - r;
    multiply(before, slot.decays(r - 1));
    multiply(after, slot.decays(s + 1));
    decay_rows(slot.Q(), r * kSubChunk, before);
    decay_rows(slot.K(), r * kSubChunk, before);
    decay_rows(slot.K_end(), s * kSubChunk, after);
  }
  fence_async_proxy();
  multiply(before, slot.decays(kSubChunks - 1));
  if (first_row > 0) return;
  auto* fours = reinterpret_cast<float4*>(slot.prepared_decays() + column);
  fours[0] = make_float4(before[0], before[1], before[2], before[3]);
  fours[1] = make_float4(before[4], before[5], before[6], before[7]);
}

}  // namespace tutorial::kda
