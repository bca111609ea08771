#pragma once
/// @file
/// The normaliser on tensor cores, for the walk of dispatch: o_t = scale q_t S_t / (scale q_t . z_t + eps).
///
/// z_t = sum_{i<=t} k_i is one more column of the state, for a value that is always 1. As a column of V it would cost a
/// tile of 16 columns, of which 15 are empty. By itself it takes three products of a matrix and a vector. With z for
/// the sum over the chunks before and 1 for a vector of ones,
///
///     Q . z_t  =  Q z + P 1
///     z       +=  1^T K
///
/// Q z and 1^T K are computed by mma, too (key_sum.cuh). P 1 is a by-product of computing P. Each warp has some tiles
/// of P and 16 rows of Q z, and all warps need all sums. So the partial sums go to shared memory, in eight columns,
/// which are added up when rows of O are stored.
///
/// A walk is bound by latency: instructions after the products add to it, but instructions between the products hardly
/// do. So the mma of both vectors are issued between those of the scores, where the most registers are free.

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

  /// The epilogue of masked_scores() that computes the denominators.
  class Epilogue {
   public:
    /// For chunk n, whose tiles are Q and K.
    __device__ Epilogue(const SharedNormalizer& all, int n, const typename Shape::KeyTile& Q,
                        const typename Shape::KeyTile& K)
        : all_(all), n_(n), Q_(Q), K_(K) {}

    /// Step i of Q z, where warp w has rows 16 w to 16 w + 15, and of this warp's part of 1^T K.
    __device__ __forceinline__ void step(int i) {
      all_.add_product(from_state_[i % 2], n_, Q_, i);
      all_.add_keys(keys_, K_, i);
    }

    /// Leaves a score unchanged.
    __device__ __forceinline__ float score(int, int, float product) { return product; }

    /// Stores the sum of a row of a tile of P. Column tile j, of 16 columns, goes to part 2 j. The right half of a tile
    /// that two warps share goes to part 2 j + 1.
    __device__ __forceinline__ void row(int t, int column, float sum) {
      sum = warp_sum<4>(sum);  // over the four lanes that have the row
      if (lane_index() % 4 == 0) all_.parts_[t * kParts + column / 8] = sum;
    }

    /// Called after all steps: stores Q z. Part 1 is free for it, because no two warps share column tile 0 of P.
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
    float from_state_[2][4] = {};  // accumulators of Q z, 8 equal columns, for even and for odd steps
    typename KeySum::KeySums keys_ = {};
  };

  /// For store_output(): scale / (scale q_t . z_t + eps) of a row, from the parts in shared memory. A lane computes two
  /// of the eight factors that it needs, and gets the others from the lanes beside it.
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
  float* parts_;  // [kChunk, kParts]: the terms of q_t . z_t
};

}  // namespace tutorial::linear_attention
