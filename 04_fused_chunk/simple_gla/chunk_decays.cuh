#pragma once
/// @file
/// The decays of a chunk that warpgroups compute (common/tile/warpgroup_chunk.cuh), and what they do to scores, to V and
/// to the state. They are those of scalar_gate.cuh.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/split_factors.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {

/// A chunk's decays, in shared memory. They lie beside the chunk's tiles.
struct ChunkDecays {
  static constexpr int kBytes = (4 * kChunk + 4) * int(sizeof(float));

  float* data;

  /// Those of a set of tiles. @param memory of the first set
  __device__ __forceinline__ ChunkDecays(void* memory, int stage)
      : data(static_cast<float*>(memory) + stage * (kBytes / int(sizeof(float)))) {}

  /// One warp writes everything that depends on the gates alone, two neighbouring positions per lane, as in ChunkSums.
  /// @param is_reversed for a walk from the end, where the decays to the chunk's end and those from its start change
  /// places
  __device__ __forceinline__ void store(const ChunkSums& b, float scale, bool is_reversed = false) const {
    const int lane = int(lane_index());
    const float block_end = __shfl_sync(kAllLanes, b.second, lane | 7);
    const auto put = [&](int array, float x, float y) {
      reinterpret_cast<float2*>(data + array * kChunk)[lane] = make_float2(x, y);
    };
    put(0, b.first, b.second);
    put(1, tile::ex2(block_end - b.first), tile::ex2(block_end - b.second));
    const float2 to_end{tile::ex2(b.end - b.first), tile::ex2(b.end - b.second)};
    const float2 from_start{tile::ex2(b.first), tile::ex2(b.second)};
    const float2 into_state = is_reversed ? from_start : to_end, from_state = is_reversed ? to_end : from_start;
    put_into_state(into_state.x, into_state.y);
    put(3, scale * from_state.x, scale * from_state.y);
    if (lane == 0) data[4 * kChunk] = tile::ex2(b.end);
  }

  /// b_t.
  __device__ __forceinline__ float b(int t) const { return data[t]; }
  /// The decays of positions i and i + 1, i even, to the end of their block of 16.
  __device__ __forceinline__ float2 to_block_end(int i) const {
    return *reinterpret_cast<const float2*>(data + kChunk + i);
  }
  /// The decays from positions i and i + 1, i even, to the end of the chunk.
  __device__ __forceinline__ SplitFactors pair_to_end(int i) const {
    const uint2 two = *reinterpret_cast<const uint2*>(data + 2 * kChunk + i);
    return {two.x, two.y};
  }
  /// The one of position i.
  __device__ __forceinline__ float to_end(int i) const {
    const SplitFactors pair = pair_to_end(i / 2 * 2);
    const float2 upper = unpack(pair.upper), lower = unpack(pair.lower);
    return i % 2 == 0 ? upper.x + lower.x : upper.y + lower.y;
  }
  /// scale 2^b_t of the thread's two rows of a product of a warpgroup.
  __device__ __forceinline__ float2 from_start_of_rows() const {
    return make_float2(data[3 * kChunk + wgmma_row(0)], data[3 * kChunk + wgmma_row(2)]);
  }
  /// The same of positions t and t + 1, t even.
  __device__ __forceinline__ float2 pair_from_start(int t) const {
    return *reinterpret_cast<const float2*>(data + 3 * kChunk + t);
  }
  /// The decay from the start of the chunk to its end.
  __device__ __forceinline__ float whole() const { return data[4 * kChunk]; }

  /// One warp writes the decays into a state, each lane two. They are factors of V in bf16.
  __device__ __forceinline__ void put_into_state(float first, float second) const {
    const SplitFactors factors = SplitFactors::of(first, second);
    reinterpret_cast<uint2*>(data + 2 * kChunk)[int(lane_index())] = make_uint2(factors.upper, factors.lower);
  }
};

/// Calls f(t, g) for the chunks at t = first, first + step, ..., `count` of them, with the lane's two of each chunk's
/// g. g is loaded four chunks ahead, because a load takes longer than a chunk. Four registers hold the g of four
/// chunks, because a copy from one register to another would wait for the load.
/// @param end where the sequence or the segment ends
template <class F>
__device__ __forceinline__ void for_each_chunk_with_g(const Bf16Arguments& a, int b, int h, int first, int step,
                                                      int count, int end, F f) {
  constexpr int kAhead = 4;
  const auto load = [&](int n) { return n < count ? load_g(a, b, h, first + n * step, end) : float2{}; };
  float2 g[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) g[i] = load(i);
  for (int n = 0; n < count; n += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (n + i >= count) return;
      const float2 g_now = g[i];
      g[i] = load(n + i + kAhead);
      f(first + (n + i) * step, g_now);
    }
  }
}

/// p = P in bf16, P_ti = scale (q_t . k_i) 2^(b_t - b_i) for i <= t, else 0. A warpgroup that has Q K^T computes it. A
/// warp has 16 rows and goes through blocks of 16 columns. On the diagonal each score has its own exponential. To the
/// left of the diagonal, the end f of i's block lies between i and t, and
///
///     2^(b_t - b_i) = 2^(b_t - b_f) 2^(b_f - b_i),
///
/// where both factors are at most 1. One exponential per row and block is computed here; that of each column is
/// computed before.
__device__ __forceinline__ void decay_scores(tile::ScoreFragments& p, tile::WarpgroupScores& scores,
                                             const ChunkDecays& decays, float scale) {
  const int first_row = tile::warp_in_group() * 16;
  const float upper = decays.b(wgmma_row(0)), lower = decays.b(wgmma_row(2));
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) {
    for (std::uint32_t& two : p[i / 16]) two = 0;
    if (i < first_row) {
      const float end = decays.b(i + 15);
      const float upper_decay = scale * tile::ex2(upper - end), lower_decay = scale * tile::ex2(lower - end);
#pragma unroll
      for (int n = i / 2; n < i / 2 + 8; n += 4) {
        const float2 two = decays.to_block_end(wgmma_column(n));
        scores[n] *= upper_decay * two.x;
        scores[n + 1] *= upper_decay * two.y;
        scores[n + 2] *= lower_decay * two.x;
        scores[n + 3] *= lower_decay * two.y;
      }
      wgmma_fragment(p[i / 16], scores, i);
    } else if (i == first_row) {
#pragma unroll
      for (int n = i / 2; n < i / 2 + 8; ++n) {
        const int column = wgmma_column(n);
        const float score = scores[n] * (scale * tile::ex2((n % 4 < 2 ? upper : lower) - decays.b(column)));
        scores[n] = column <= wgmma_row(n) ? score : 0;  // above the diagonal the power may be infinite
      }
      wgmma_fragment(p[i / 16], scores, i);
    }
  }
}

/// The same as decay_scores(), written to shared memory.
__device__ __forceinline__ void store_decayed_scores(const tile::PanelTile<kChunk>& P, tile::WarpgroupScores& scores,
                                                     const ChunkDecays& decays, float scale) {
  const int lane = int(lane_index()), first_row = tile::warp_in_group() * 16;
  tile::ScoreFragments p;
  decay_scores(p, scores, decays, scale);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) {
    stmatrix(P.data + P.unit(first_row + lane % 16, i + lane / 16 * 8), p[i / 16]);
  }
}

/// to = diag(2^(b_end - b)) V, computed by a warpgroup. Each warp takes its 16 positions.
__device__ __forceinline__ void store_decayed_values(const tile::PanelTile<64>& to, const tile::PanelTile<64>& V,
                                                     const ChunkDecays& decays) {
  const int lane = int(lane_index()), first = tile::warp_in_group() * 16 + lane / 8, column = lane % 8 * 8;
  uint4 units[4];  // all loads first: the compiler moves no load in front of a store
  float decay[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    units[i] = *reinterpret_cast<const uint4*>(V.data + V.unit(first + 4 * i, column));
    decay[i] = decays.to_end(first + 4 * i);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint4& unit = units[i];
    for (std::uint32_t* two : {&unit.x, &unit.y, &unit.z, &unit.w}) *two = times(*two, {decay[i], decay[i]});
    store_for_copies(reinterpret_cast<uint4*>(to.data + V.unit(first + 4 * i, column)), unit);
  }
}

/// S = 2^b_end S.
template <int kSums>
__device__ __forceinline__ void decay_state(float (&S)[kSums], float whole) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) S[i] *= whole;
}

}  // namespace tutorial::simple_gla
