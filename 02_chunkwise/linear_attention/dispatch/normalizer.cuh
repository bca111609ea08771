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
/// Q z and 1^T K are done in mma, too (key_sum.cuh). P 1 falls off where P is made. Each warp has some tiles of P and
/// 16 rows of Q z, and all warps need all sums: they meet in shared memory, in eight columns that are added up when
/// rows of O are stored.
///
/// A walk is bound by latency: what comes after the products adds to it, what is mixed in with them hardly does. So
/// the mma of both vectors are issued between those of the scores, where the most registers are free.

#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/linear_attention/dispatch/key_sum.cuh"
#include "common/tile/chunk_products.cuh"

namespace tutorial::linear_attention {

using tile::warp_index;

/// z before and after a chunk, and the parts of the chunk's denominators, in shared memory.
template <class Shape>
class SharedNormalizer : public SharedKeySum<Shape> {
  using KeySum = SharedKeySum<Shape>;
  static constexpr int kParts = 8;

 public:
  static constexpr int kBytes = int(sizeof(float)) * kChunk * kParts + KeySum::kBytes;

  /// @param memory kBytes in shared memory, aligned to 16 bytes
  __device__ explicit SharedNormalizer(void* memory)
      : KeySum(static_cast<float*>(memory) + kChunk * kParts), parts_(static_cast<float*>(memory)) {}

  /// SharedKeySum::load(), by all threads.
  __device__ void load(const float* start, int Dk, int n) const {
    KeySum::load(start, Dk, n);
    for (int i = int(threadIdx.x); i < kChunk * kParts; i += kThreads) parts_[i] = 0;  // some are never written
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
      all_.add_product(from_state_[i % 2], n_, Q_, i);
      all_.add_keys(keys_, K_, i);
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
    typename KeySum::KeySums keys_ = {};
  };

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
  float* parts_;  // [kChunk, kParts]: what adds up to q_t . z_t
};

}  // namespace tutorial::linear_attention
