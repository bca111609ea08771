#pragma once
/// @file
/// The normaliser on tensor cores, for the walk of dispatch: o_t = scale q_t S_t / (scale q_t . z_t + eps).
///
/// z_t = sum_{i<=t} k_i is one more column of the state, for a value that is always 1. As a column of V it would cost a
/// tile of 16, of which 15 are empty; by itself it is a matrix times a vector, three times. With z of the chunks
/// before and 1 a column of ones,
///
///     Q . z_t  =  Q z + P 1
///     z       +=  1^T K
///
/// Q z and 1^T K are done in mma, too, with 8 equal columns or 16 equal rows: Q and K are where ldmatrix finds them.
/// P 1 falls off where P is made. Each warp has some tiles of P and 16 rows of Q z, and all warps need all sums: they
/// meet in shared memory, in eight columns that are added up when rows of O are stored. z is kept in fp32 and, for Q
/// z, in bf16, as S is; twice, the old one and the new one, so that no barrier is added to the walk.
///
/// A walk is bound by latency: what comes after the products adds to it, what is mixed in with them hardly does. So
/// the mma of both vectors are issued between those of the scores, where the most registers are free.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/memory.cuh"
#include "common/tile/chunk_products.cuh"

namespace tutorial::linear_attention {

using tile::fresh_lane;
using tile::kChunk;
using tile::kThreads;
using tile::kWarps;
using tile::warp_index;

/// z before and after a chunk, and the parts of the chunk's denominators, in shared memory.
template <class Shape>
class SharedNormalizer {
  static constexpr int kParts = 8;
  static constexpr int kWarpKeys = Shape::kDk / kWarps;  // columns of K whose sums a warp computes
  static constexpr int kKeyTiles = kWarpKeys / 16;

 public:
  using KeySums = float[kKeyTiles][2][4];  ///< accumulators of a warp's part of 1^T K, 16 equal rows
  static constexpr int kBytes = int(sizeof(float)) * (kChunk * kParts + 2 * Shape::kDk + Shape::kDk);

  /// @param memory kBytes in shared memory, aligned to 16 bytes
  __device__ explicit SharedNormalizer(void* memory)
      : parts_(static_cast<float*>(memory)),
        z_(parts_ + kChunk * kParts),
        z_bf16_(reinterpret_cast<std::uint32_t*>(z_ + 2 * Shape::kDk)) {}

  /// z before chunk n = the first Dk elements of `start` in global memory, or zeros where that is null. By all
  /// threads; a barrier must follow.
  __device__ void load(const float* start, int Dk, int n) const {
    const auto element = [&](int d) { return start != nullptr && d < Dk ? load_global(start + d) : 0.0f; };
    for (int d = 2 * int(threadIdx.x); d < Shape::kDk; d += 2 * kThreads) set(n, d, element(d), element(d + 1));
    for (int i = int(threadIdx.x); i < kChunk * kParts; i += kThreads) parts_[i] = 0;  // some are never written
  }

  /// Writes z after the last chunk, n - 1, to global memory, Dk elements: each lane those that it has computed.
  __device__ void store(float* to, int Dk, int n) const {
    for_each_pair([&](int, int d) {
      if (d >= Dk) return;
      store_global(to + d, z(n)[d]);
      store_global(to + d + 1, z(n)[d + 1]);
    });
  }

  /// What masked_scores() does for the normaliser on the way.
  class Epilogue {
   public:
    /// For chunk n, whose tiles are Q and K.
    __device__ Epilogue(const SharedNormalizer& all, int n, const typename Shape::KeyTile& Q,
                        const typename Shape::KeyTile& K)
        : all_(all), n_(n), Q_(Q), K_(K) {}

    /// Step i of Q z for rows 16 w to 16 w + 15, by warp w, and of the same warp's part of 1^T K.
    __device__ __forceinline__ void step(int i) {
      const int lane = fresh_lane();
      std::uint32_t q[4];
      ldmatrix_x4(q, Q_.data + Q_.advance(Q_.unit(warp_index() * 16 + lane % 16, lane / 16 * 8), 0, i * 16));
      const std::uint32_t* z_bf16 = all_.z_bf16(n_) + i * 8 + lane % 4;
      mma_m16n8k16(from_state_[i % 2], q, {z_bf16[0], z_bf16[4]});
      add_keys(keys_, K_, i);
    }

    /// A score as it is.
    __device__ __forceinline__ float score(int, int, float product) { return product; }

    /// A row of a tile of P. Tile j of 16 columns is part 2 j; the right halves of the tiles that two warps share are
    /// part 2 j + 1.
    __device__ __forceinline__ void row(int t, int column, float sum) {
      sum = warp_sum<4>(sum);  // the four lanes that have a row
      if (lane_index() % 4 == 0) all_.parts_[t * kParts + column / 8] = sum;
    }

    /// After all steps. Part 1 is free for Q z, because column tile 0 of P is not shared.
    __device__ __forceinline__ void finish() const {
      const int lane = fresh_lane(), lower = lane % 4;  // two of the four lanes that have the same rows
      if (lower < 2) {
        all_.parts_[(warp_index() * 16 + lane / 4 + lower * 8) * kParts + 1] =
            lower ? from_state_[0][2] + from_state_[1][2] : from_state_[0][0] + from_state_[1][0];
      }
      all_.advance(n_, keys_);
    }

   private:
    const SharedNormalizer& all_;
    const int n_;
    const typename Shape::KeyTile &Q_, &K_;
    float from_state_[2][4] = {};  // accumulators of Q z, 8 equal columns: even steps and odd ones
    KeySums keys_ = {};
  };

  /// keys += 1^T K, the warp's columns: for a kernel that wants nothing else.
  static __device__ __forceinline__ void add_keys(KeySums& keys, const typename Shape::KeyTile& K) {
#pragma unroll
    for (int i = 0; i < Shape::kDk / 16; ++i) add_keys(keys, K, i);
  }
  /// Writes the first Dk sums to global memory.
  static __device__ __forceinline__ void store_keys(float* to, const KeySums& keys, int Dk) {
    for_each_pair([&](int i, int d) {
      if (d >= Dk) return;
      store_global(to + d, keys[i / 2][i % 2][0]);
      store_global(to + d + 1, keys[i / 2][i % 2][1]);
    });
  }

  /// For store_output(): scale / (scale q_t . z_t + eps) of a row, where the parts are. A lane computes two of the
  /// eight that it needs, and has the others from the lanes beside it.
  __device__ __forceinline__ auto factors(float scale, float eps) const {
    const int lane = fresh_lane();
    const auto factor = [&](int t) {
      const auto* four = reinterpret_cast<const float4*>(parts_ + t * kParts);
      const float4 a = four[0], b = four[1];
      const float sum = ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
      return __fdividef(scale, scale * sum + eps);
    };
    const float first = factor(lane % 4 * 8 + lane / 4), second = factor(32 + lane % 4 * 8 + lane / 4);
    return [=](int i) { return __shfl_sync(kAllLanes, i < 4 ? first : second, i % 4, 4); };
  }

 private:
  /// Step i of the warp's part of 1^T K; there are as many as steps of 16 in Dk.
  static __device__ __forceinline__ void add_keys(KeySums& keys, const typename Shape::KeyTile& K, int i) {
    const int lane = fresh_lane(), tile = i / 4, t = i % 4 * 16;
    const std::uint32_t ones = pack(1.0f, 1.0f);
    std::uint32_t k[4];
    ldmatrix_x4_trans(k, K.data + K.unit(t + lane % 16, warp_index() * kWarpKeys + tile * 16 + lane / 16 * 8));
    mma_m16n8k16(keys[tile][0], {ones, ones, ones, ones}, {k[0], k[1]});
    mma_m16n8k16(keys[tile][1], {ones, ones, ones, ones}, {k[2], k[3]});
  }

  /// Calls f(i, d) for each pair of sums, number i of the lane's, columns d and d + 1. Four lanes have all of a warp's.
  template <class F>
  static __device__ __forceinline__ void for_each_pair(F f) {
    const int lane = fresh_lane();
    if (lane >= 4) return;
#pragma unroll
    for (int i = 0; i < 2 * kKeyTiles; ++i) f(i, warp_index() * kWarpKeys + i * 8 + lane * 2);
  }

  /// z after chunk n = z before it + keys.
  __device__ __forceinline__ void advance(int n, const KeySums& keys) const {
    for_each_pair([&](int i, int d) {
      const float* two = keys[i / 2][i % 2];
      set(n + 1, d, z(n)[d] + two[0], z(n)[d + 1] + two[1]);
    });
  }

  __device__ __forceinline__ float* z(int n) const {
    return z_ + n % 2 * Shape::kDk;
  }
  __device__ __forceinline__ std::uint32_t* z_bf16(int n) const {
    return z_bf16_ + n % 2 * (Shape::kDk / 2);
  }

  /// z[d] and z[d + 1] before chunk n, in both forms; d is even.
  __device__ __forceinline__ void set(int n, int d, float first, float second) const {
    *reinterpret_cast<float2*>(z(n) + d) = float2{first, second};
    z_bf16(n)[d / 2] = pack(first, second);
  }

  float* parts_;           // [kChunk, kParts]: what adds up to q_t . z_t
  float* z_;               // [2, kDk]: before even chunks, before odd ones
  std::uint32_t* z_bf16_;  // [2, kDk / 2]: the same in bf16, two in a word
};

}  // namespace tutorial::linear_attention
