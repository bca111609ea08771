#pragma once
/// @file
/// The short way from q, k and g of a chunk to Q+, K+, K-, P and A: one anchor for all pairs of positions.
///
/// With b_t the running sum of g from the chunk's first position on, and b_end at its last one,
///
///     Q+_t = exp(b_t) q_t,   K+_t = exp(b_t) k_t,   K-_i = exp(b_end - b_i) k_i
///
/// A score of t and i contains exp(b_t - b_i), and that is exp(b_t) exp(-b_end) exp(b_end - b_i). So P is a product of
/// warpgroups, of Q+ and K-, whose left factor is multiplied by exp(-b_end) on its way to the tensor cores, and A is
/// the same with K+. exp(-b_end) is at least 1. It does no harm as long as no number leaves the range of bf16, which is
/// that of fp32. The bound is an exp(b_end) of at least 2^-100 in each column, which is that of 64 gates of exp(-1.08).
/// Within it, only elements of q and k below 2^-26 can lose digits.
///
/// A chunk with a column that forgets more may have two anchors: a middle way (half_anchors.cuh). Else it takes the
/// long way (sub_chunk_anchors.cuh).
///
/// Sources: arXiv 2510.26692, section 3.1; FlashKDA has one anchor per chunk, too, with chunks of 16 positions and
/// gates of at least exp(-5).

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda/chunk_slot.cuh"
#include "05_deltanet_wy/kda/half_anchors.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/device/wgmma.cuh"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {

/// How a chunk's scores are computed. One that a warp's columns allow allows those before it, too.
enum Way { kLongWay, kTwoAnchors, kOneAnchor };

/// The way that the columns of all warps allow. They have passed a barrier since they said so.
__device__ __forceinline__ Way common_way(const int* ways) {
  return Way(min(min(ways[0], ways[1]), min(ways[2], ways[3])));
}

/// f_t = 1 / sqrt(k_t . k_t + eps) of the warp's 16 positions. @param factors [64]
template <int kDk>
__device__ __forceinline__ void find_factors(const ChunkSlot<kDk>& slot, int warp, float* factors) {
  constexpr int kColumns = kDk / 32;
  const int lane = int(lane_index()), column = lane * kColumns;
  const auto unit = slot.K().unit(warp * tile::kSubChunk, column / 8 * 8) + column % 8;
  float squares[tile::kSubChunk] = {};
#pragma unroll
  for (int t = 0; t < tile::kSubChunk; ++t) {
    const auto* two = reinterpret_cast<const std::uint32_t*>(slot.K().data + (unit ^ t % 8 * 8) + t * 64);
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const float2 k = unpack(two[i]);
      squares[t] += k.x * k.x + k.y * k.y;
    }
  }
  const float factor = rsqrtf(tile::sum_over_lanes<tile::kSubChunk / 2>(squares, lane) + kKeyEps);
  if (lane % 2 == 0) factors[warp * tile::kSubChunk + lane / 2] = factor;
}

/// Multiplies the warp's 16 keys by their factors, where they lie: for the long way, which rounds them once more.
template <int kDk>
__device__ __forceinline__ void normalize_keys(const ChunkSlot<kDk>& slot, int warp, const float* factors) {
  const int first = warp * tile::kSubChunk;
#pragma unroll 1
  for (int t = first; t < first + tile::kSubChunk; ++t) {
#pragma unroll
    for (int column = int(lane_index()) * 2; column < kDk; column += 64) {
      auto* two = reinterpret_cast<std::uint32_t*>(slot.K().data + slot.K().unit(t, column / 8 * 8) + column % 8);
      *two = scaled(*two, {factors[t], factors[t]});
    }
  }
  __syncwarp();
}

/// Makes Q+, K+ and K- of q, k and g, or the rows that two anchors need. A warpgroup calls it. Sums run down a column,
/// so each warp has 32 columns (at Dk = 64 two warps have none), and a lane has two columns of half of the chunk's
/// positions.
/// @param ways [4] in shared memory, says for each warp what its columns allow
/// @param barrier a named barrier of the warpgroup's
/// @tparam kNormalize whether to multiply keys by their factors
/// @return what all allow. If that is the long way, nothing has changed
template <bool kNormalize, int kDk>
__device__ __forceinline__ Way decay_with_anchors(const ChunkSlot<kDk>& slot, int warp, int* ways, unsigned barrier,
                                                  const float* factors) {
  constexpr int kHalf = tile::kChunk / 2, kRows = 8;  // positions of a lane; at a time
  constexpr float kLeast = -100;
  const int lane = int(lane_index()), first = lane / 16 * kHalf, column = warp * 32 + lane % 16 * 2;
  const bool has_columns = column < kDk;
  // From a multiple of 8 to the i-th row after it, the permutation of units of 16 bytes is one exclusive or.
  const int unit = slot.Q().unit(first, column / 8 * 8) + column % 8, unit_of_g = slot.g().place(first, column);
  const auto two = [&](const tile::PanelTile<kDk>& tile, int t, int i) {
    return reinterpret_cast<std::uint32_t*>(tile.data + (unit ^ i * 8) + (t + i) * 64);
  };
  const auto gates = [&](int t, int i) {
    return *reinterpret_cast<const float2*>(slot.g().data + (unit_of_g ^ i * 4) + (t + i) * 32);
  };
  float2 sum{0, 0}, middle{0, 0};  // of the half, and of the first half of that
  if (has_columns) {
#pragma unroll
    for (int t = 0; t < kHalf; ++t) {
      if (t == kHalf / 2) middle = sum;
      add_gates(sum, gates(t / kRows * kRows, t % kRows));
    }
  }
  const float2 other{__shfl_xor_sync(kAllLanes, sum.x, 16), __shfl_xor_sync(kAllLanes, sum.y, 16)};
  const float2 end{sum.x + other.x, sum.y + other.y};
  const bool allows_two =
      __all_sync(kAllLanes, min(min(middle.x, middle.y), min(sum.x - middle.x, sum.y - middle.y)) >= kLeast);
  const bool allows_one = __all_sync(kAllLanes, min(end.x, end.y) >= kLeast);
  if (lane == 0) ways[warp] = allows_one ? kOneAnchor : allows_two ? kTwoAnchors : kLongWay;
  wait_at_named_barrier(barrier, tile::kWarpgroup);
  const Way way = common_way(ways);
  if (way == kLongWay) return way;

  // From where on rows of queries have their decays, and to where those of keys have theirs: the chunk's start and end,
  // or the anchor of the half, from which b counts then.
  float2 b = lane < 16 ? float2{0, 0} : other, to = end;
  if (way == kTwoAnchors) b = {-middle.x, -middle.y}, to = {0, 0};
#pragma unroll 1
  for (int t = 0; t < kHalf; t += kRows) {
    // All loads before all stores: the compiler cannot know that they do not overlap.
    std::uint32_t q[kRows], k[kRows];
    float2 of_rows[kRows];
    if (has_columns) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        of_rows[i] = gates(t, i);
        q[i] = *two(slot.Q(), t, i);
        k[i] = *two(slot.K(), t, i);
      }
    }
    wait_at_named_barrier(barrier, tile::kWarpgroup);  // all warps have read these rows: K- comes where g lies
    if (!has_columns) continue;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      add_gates(b, of_rows[i]);
      const float2 from_start{tile::ex2(b.x), tile::ex2(b.y)}, to_end{tile::ex2(to.x - b.x), tile::ex2(to.y - b.y)};
      float2 of_k = unpack(k[i]);
      if constexpr (kNormalize) {
        const float factor = factors[first + t + i];
        of_k = {factor * of_k.x, factor * of_k.y};
      }
      store_for_copies(two(slot.Q(), t, i), scaled(q[i], from_start));
      store_for_copies(two(slot.K(), t, i), pack(of_k.x * from_start.x, of_k.y * from_start.y));
      store_for_copies(two(slot.K_end(), t, i), pack(of_k.x * to_end.x, of_k.y * to_end.y));
    }
  }
  fence_async_proxy();
  if (!has_columns) return way;
  if (way == kTwoAnchors) put_half_decays(slot, lane / 16, column, middle, sum, other);
  if (first > 0) return way;
  *reinterpret_cast<float2*>(slot.prepared_decays() + column) = {tile::ex2(end.x), tile::ex2(end.y)};
  if (way == kOneAnchor) *reinterpret_cast<float2*>(slot.growths() + column) = {tile::ex2(-end.x), tile::ex2(-end.y)};
  return way;
}

/// P or A, without scale and beta; what is above the diagonal has no meaning. A warpgroup calls it, and each warp has a
/// row of blocks.
/// @param queries Q+ for P, K+ for A
template <int kDk>
__device__ __forceinline__ void scores_with_one_anchor(tile::WarpgroupScores& scores,
                                                       const tile::PanelTile<kDk>& queries, const ChunkSlot<kDk>& slot,
                                                       int warp) {
  const int lane = int(lane_index()), unit = queries.unit(warp * 16 + lane % 16, lane / 16 * 8);
  const float* growths = slot.growths() + lane % 4 * 2;
  std::uint32_t q[kDk / 16][4];
#pragma unroll
  for (int d = 0; d < kDk; d += 16) {
    ldmatrix_x4(q[d / 16], queries.data + queries.advance(unit, 0, d));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 growth = *reinterpret_cast<const float2*>(growths + d + half * 8);
      q[d / 16][2 * half] = scaled(q[d / 16][2 * half], growth);
      q[d / 16][2 * half + 1] = scaled(q[d / 16][2 * half + 1], growth);
    }
  }
  const auto keys = tile::k_along_rows(slot.K_end());
  wgmma_fence(scores, q);
#pragma unroll
  for (int d = 0; d < kDk; d += 16) wgmma<tile::kChunk>(scores, q[d / 16], keys.along_k(d), d > 0);
  wgmma_commit();
  wgmma_wait<0>(scores);
}

}  // namespace tutorial::kda
