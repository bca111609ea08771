#pragma once
/// @file
/// The middle way from the rows of a chunk to Q+, K+, K-, P and A, for gates down to exp(-4.3) at all positions: two
/// anchors, m_0 in the middle of positions 0 to 31 and m_1 in that of positions 32 to 63.
///
/// With the b_t of chunk_anchor.cuh, and m_h for b at the anchor of a half h, decay_with_anchors() makes the rows
///
///     q~_t = exp(b_t - m_h) q_t,   k+~_t = exp(b_t - m_h) k_t,   k~_i = exp(m_h - b_i) k_i
///
/// where one of the two factors of a score is larger than 1, but by no more than 2^100: no half of a half forgets more.
/// Then
///
///     P_ti    i in half 0                            half 1
///     t in half 0     q~_t . k~_i
///          half 1     (exp(m_1 - m_0) q~_t) . k~_i   q~_t . k~_i
///
/// where exp(m_1 - m_0) is multiplied in two steps, to the end of half 0 and on, as each is at least 2^-100. Keys go to
/// the tensor cores as they are, and queries are read once for both. Then the rows get what they lack:
///
///     Q+_t = exp(m_h) q~_t,   K+_t = exp(m_h) k+~_t,   K-_i = exp(b_end - m_h) k~_i
///
/// A number that leaves the range of bf16 on one of these ways is 2^-26 times an element of q or k, or less.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/blocks.hpp"
#include "05_deltanet_wy/chunk/inverse.cuh"
#include "05_deltanet_wy/kda/chunk_slot.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {

/// Writes a half's decays, of two columns.
/// @param middle,sum the sums of g of the half, to base 2: up to its anchor, and all
/// @param other that of the other half
template <int kDk>
__device__ __forceinline__ void put_half_decays(const ChunkSlot<kDk>& slot, int half, int column, float2 middle,
                                                float2 sum, float2 other) {
  const auto put = [&](float* decays, float2 b) {
    *reinterpret_cast<float2*>(decays + column) = {tile::ex2(b.x), tile::ex2(b.y)};
  };
  const float2 rest{sum.x - middle.x, sum.y - middle.y};
  const float2 before = half == 0 ? float2{0, 0} : other, behind = half == 0 ? other : float2{0, 0};
  put(slot.from_start(half), {before.x + middle.x, before.y + middle.y});
  put(slot.to_end(half), {rest.x + behind.x, rest.y + behind.y});
  put(slot.between(half), half == 0 ? rest : middle);
}

/// The blocks (r, 0) to (r, r) of P or A, without scale and beta; what is above the diagonal has no meaning. Turns the
/// rows of these queries from q~ into Q+, or from k+~ into K+. One warp does it.
/// @param sums zeros
/// @param queries q~ for P, k+~ for A
/// @param r the same in all lanes, and the compiler knows it
template <int kDk>
__device__ __forceinline__ void scores_with_two_anchors(delta_rule::BlockRow& sums, const tile::PanelTile<kDk>& queries,
                                                        const ChunkSlot<kDk>& slot, int r) {
  using delta_rule::kBlock, delta_rule::kBlocks;
  const tile::PanelTile<kDk> keys = slot.K_end();
  const int lane = int(lane_index()), half = r / 2;
  const int query = queries.unit(r * kBlock + lane % 16, lane / 16 * 8);
  const int key = keys.unit(lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8);
#pragma unroll 1  // instructions have to be fetched, too: see gated_delta_rule/gated_matrices.cuh
  for (int d = 0; d < kDk; d += 16) {
    std::uint32_t q[4], left[4], decayed[4], k[kBlocks][4];
    ldmatrix_x4(q, queries.data + queries.advance(query, 0, d));
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
      if (c <= r) ldmatrix_x4(k[c], keys.data + keys.advance(key, c * kBlock, d));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto decays = [&](const float* of) {
        return *reinterpret_cast<const float2*>(of + d + i / 2 * 8 + lane % 4 * 2);
      };
      const float2 two = unpack(q[i]), first = decays(slot.between(1)), second = decays(slot.between(0));
      left[i] = half == 0 ? q[i] : pack(two.x * first.x * second.x, two.y * first.y * second.y);
      decayed[i] = scaled(q[i], decays(slot.from_start(half)));
    }
    __syncwarp();  // other lanes have read these rows
    stmatrix(queries.data + queries.advance(query, 0, d), decayed);
#pragma unroll
    for (int c = 0; c < kBlocks; ++c) {
      if (c > r) continue;
#pragma unroll
      for (int n = 0; n < 2; ++n) mma_m16n8k16(sums[c][n], c < 2 ? left : q, {k[c][2 * n], k[c][2 * n + 1]});
    }
  }
}

/// Makes K- of k~. A warpgroup does it. All warps have passed a barrier since they have used k~.
/// @param thread of the warpgroup
template <int kDk>
__device__ __forceinline__ void decay_keys_to_end(const ChunkSlot<kDk>& slot, int thread) {
  constexpr int kUnits = kDk / 8, kStep = tile::kWarpgroup / kUnits, kHalf = tile::kChunk / 2;  // rows at a time
  const int column = thread % kUnits * 8, unit = slot.K_end().unit(thread / kUnits, column);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto* decays = reinterpret_cast<const float4*>(slot.to_end(half) + column);
    const float4 first = decays[0], last = decays[1];
    uint4 k[kHalf / kStep];  // all loads before all stores, as in chunk_anchor.cuh
    const auto place = [&](int i) {
      return reinterpret_cast<uint4*>(slot.K_end().data + slot.K_end().advance(unit, half * kHalf + i * kStep, 0));
    };
#pragma unroll
    for (int i = 0; i < kHalf / kStep; ++i) k[i] = *place(i);
#pragma unroll
    for (int i = 0; i < kHalf / kStep; ++i) {
      store_for_copies(place(i), make_uint4(scaled(k[i].x, {first.x, first.y}), scaled(k[i].y, {first.z, first.w}),
                                            scaled(k[i].z, {last.x, last.y}), scaled(k[i].w, {last.z, last.w})));
    }
  }
  fence_async_proxy();
}

}  // namespace tutorial::kda
