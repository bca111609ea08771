#pragma once
/// @file
/// z, the sum of the keys before a chunk, in shared memory: for the normaliser of the walks of dispatch.
///
///     Q z     add_product()                 a matrix times a vector
///     1^T K   add_keys(), then advance()    a vector of ones times a matrix
///
/// Both are computed by mma, with 8 equal columns or 16 equal rows, because Q and K already lie where ldmatrix can read
/// them. z is kept in fp32 and, for Q z, in bf16, as S is. There are two copies of z, used for alternating chunks, so
/// that no barrier is needed between Q z and the next z. The four warps of 128 threads share the work; each has 16 rows
/// of Q z and a quarter of z.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::linear_attention {

using tile::fresh_lane;
using tile::kChunk;
using tile::kThreads;
using tile::kWarps;

/// z before a chunk and after it.
template <class Shape>
class SharedKeySum {
  static constexpr int kCopies = 2;                      // z before chunk n overwrites z before chunk n - 2
  static constexpr int kWarpKeys = Shape::kDk / kWarps;  // columns of K whose sums a warp computes
  static constexpr int kKeyTiles = kWarpKeys / 16;

 public:
  using KeySums = float[kKeyTiles][2][4];  ///< accumulators of a warp's part of 1^T K, 16 equal rows
  static constexpr int kBytes = kCopies * int(sizeof(float)) * (Shape::kDk + Shape::kDk / 2);

  /// @param memory kBytes in shared memory, aligned to 16 bytes
  __device__ explicit SharedKeySum(void* memory)
      : z_(static_cast<float*>(memory)), z_bf16_(reinterpret_cast<std::uint32_t*>(z_ + kCopies * Shape::kDk)) {}

  /// z before chunk n = the first Dk elements of `start` in device memory, or zeros if `start` is null. A barrier must
  /// follow.
  __device__ void load(const float* start, int Dk, int n) const {
    const auto element = [&](int d) { return start != nullptr && d < Dk ? load_global(start + d) : 0.0f; };
    for (int d = 2 * (int(threadIdx.x) % kThreads); d < Shape::kDk; d += 2 * kThreads)
      set(n, d, element(d), element(d + 1));
  }

  /// Writes z after the last chunk, n - 1, to device memory, Dk elements. Each lane writes the elements that it has
  /// computed.
  __device__ void store(float* to, int Dk, int n) const {
    for_each_pair([&](int, int d) {
      if (d >= Dk) return;
      store_global(to + d, z(n)[d]);
      store_global(to + d + 1, z(n)[d + 1]);
    });
  }

  /// Adds step i of Q z, where warp w has rows 16 w to 16 w + 15. There is one step per 16 columns of Dk.
  /// @param sums accumulators, 8 equal columns
  __device__ __forceinline__ void add_product(float (&sums)[4], int n, const typename Shape::KeyTile& Q, int i) const {
    const int lane = fresh_lane();
    std::uint32_t q[4];
    ldmatrix_x4(q, Q.data + Q.advance(Q.unit(warp() * 16 + lane % 16, lane / 16 * 8), 0, i * 16));
    const std::uint32_t* z = z_bf16(n) + i * 8 + lane % 4;
    mma_m16n8k16(sums, q, {z[0], z[4]});
  }

  /// Step i of keys += 1^T K for the warp's columns. There is one step per 16 columns of Dk.
  static __device__ __forceinline__ void add_keys(KeySums& keys, const typename Shape::KeyTile& K, int i) {
    const int lane = fresh_lane(), tile = i / 4, t = i % 4 * 16;
    const std::uint32_t ones = pack(1.0f, 1.0f);
    std::uint32_t k[4];
    ldmatrix_x4_trans(k, K.data + K.unit(t + lane % 16, warp() * kWarpKeys + tile * 16 + lane / 16 * 8));
    mma_m16n8k16(keys[tile][0], {ones, ones, ones, ones}, {k[0], k[1]});
    mma_m16n8k16(keys[tile][1], {ones, ones, ones, ones}, {k[2], k[3]});
  }
  /// All steps of keys += 1^T K.
  static __device__ __forceinline__ void add_keys(KeySums& keys, const typename Shape::KeyTile& K) {
#pragma unroll
    for (int i = 0; i < Shape::kDk / 16; ++i) add_keys(keys, K, i);
  }
  /// Writes the first Dk sums to device memory.
  static __device__ __forceinline__ void store_keys(float* to, const KeySums& keys, int Dk) {
    for_each_pair([&](int i, int d) {
      if (d >= Dk) return;
      store_global(to + d, keys[i / 2][i % 2][0]);
      store_global(to + d + 1, keys[i / 2][i % 2][1]);
    });
  }

  /// z after chunk n = z before it + keys. A barrier must follow before the next add_product().
  __device__ __forceinline__ void advance(int n, const KeySums& keys) const {
    for_each_pair([&](int i, int d) {
      const float* two = keys[i / 2][i % 2];
      set(n + 1, d, z(n)[d] + two[0], z(n)[d + 1] + two[1]);
    });
  }

 private:
  /// The number of the warp among the four.
  static __device__ __forceinline__ int warp() {
    return tile::warp_index() % kWarps;
  }

  /// Calls f(i, d) for each pair of sums of this lane: number i, columns d and d + 1. Four lanes have all sums of a
  /// warp.
  template <class F>
  static __device__ __forceinline__ void for_each_pair(F f) {
    const int lane = fresh_lane();
    if (lane >= 4) return;
#pragma unroll
    for (int i = 0; i < 2 * kKeyTiles; ++i) f(i, warp() * kWarpKeys + i * 8 + lane * 2);
  }

  __device__ __forceinline__ float* z(int n) const {
    return z_ + n % kCopies * Shape::kDk;
  }
  __device__ __forceinline__ std::uint32_t* z_bf16(int n) const {
    return z_bf16_ + n % kCopies * (Shape::kDk / 2);
  }

  /// Sets z[d] and z[d + 1] before chunk n, in fp32 and in bf16; d is even.
  __device__ __forceinline__ void set(int n, int d, float first, float second) const {
    *reinterpret_cast<float2*>(z(n) + d) = float2{first, second};
    z_bf16(n)[d / 2] = pack(first, second);
  }

  float* z_;               // [kCopies, kDk]
  std::uint32_t* z_bf16_;  // [kCopies, kDk / 2]: the same in bf16, two per word
};

}  // namespace tutorial::linear_attention
