#pragma once
/// @file
/// z, the sum of the keys before a chunk, in shared memory: for the normaliser of the walk on Hopper.
///
///     Q z     partial_products()                 a matrix times a vector
///     1^T K   add_keys(), sum_of_parts()         the sum of K's rows
///
/// Both are done by the units for ordinary arithmetic, in fp32, on a tile that a bulk copy has brought. key_sum.cuh
/// does the same in mma; but a tensor core that is busy with products of warpgroups lets an mma of another warp wait
/// for each of them, and here some 20 such waits stood in line. A warp of the warpgroup has 16 rows of Q z, four lanes
/// per row, and a quarter of z, two elements per lane.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::linear_attention {

/// z before each of the last chunks. While one warp reads the z of its chunk, others may be three chunks ahead.
template <class Shape>
class WarpgroupKeySum {
  static constexpr int kCopies = 4;              // z before chunk n takes the place of that before chunk n - 4
  static constexpr int kPairs = Shape::kDk / 8;  // pairs of columns of a warp
  static constexpr int kParts = 32 / kPairs;     // lanes that share a pair: each adds a part of the rows
  static constexpr int kPartRows = 8 / kParts;   // of every eight rows
  using KeyTile = typename Shape::KeyTile;

 public:
  static constexpr int kBytes = kCopies * Shape::kDk * int(sizeof(float));

  /// @param memory kBytes in shared memory, aligned to 16 bytes
  __device__ explicit WarpgroupKeySum(void* memory) : z_(static_cast<float*>(memory)) {}

  /// z before chunk 0 = the first Dk elements of `start` in global memory, or zeros where that is null. A barrier of the
  /// warpgroup must follow.
  __device__ void load(const float* start, int Dk) const {
    for (int d = int(threadIdx.x) % tile::kWarpgroup; d < Shape::kDk; d += tile::kWarpgroup) {
      z(0)[d] = start != nullptr && d < Dk ? load_global(start + d) : 0.0f;
    }
  }

  /// keys += the sum of the lane's part of the rows, of its two columns. The parts of every eight rows lie in different
  /// banks.
  static __device__ __forceinline__ void add_keys(float2& keys, const KeyTile& K) {
    const int first_row = int(lane_index()) / kPairs * kPartRows, d = first_column();
#pragma unroll
    for (int row = 0; row < kPartRows; ++row) {
      const __nv_bfloat16* two = K.data + K.unit(first_row + row, d / 8 * 8) + d % 8;
#pragma unroll
      for (int i = 0; i < tile::kChunk; i += 8) {
        const float2 k = unpack(*reinterpret_cast<const std::uint32_t*>(two + KeyTile::advance(0, i, 0)));
        keys.x += k.x;
        keys.y += k.y;
      }
    }
  }
  /// The sums of all rows, in all lanes that have the columns.
  static __device__ __forceinline__ float2 sum_of_parts(float2 keys) {
#pragma unroll
    for (int flipped = kPairs; flipped < 32; flipped *= 2) {
      keys.x += shuffle_xor(keys.x, flipped);
      keys.y += shuffle_xor(keys.y, flipped);
    }
    return keys;
  }
  /// Writes the first Dk sums to global memory. @param keys of sum_of_parts()
  static __device__ __forceinline__ void store(float* to, float2 keys, int Dk) {
    const int d = first_column();
    if (!has_columns() || d >= Dk) return;
    store_global(to + d, keys.x);
    store_global(to + d + 1, keys.y);
  }

  /// z before chunk n + 1 = z before chunk n + keys; returns what the lane has of it. @param keys of sum_of_parts()
  __device__ __forceinline__ float2 advance(int n, float2 keys) const {
    const int d = first_column();
    const float2 before = *reinterpret_cast<const float2*>(z(n) + d);
    keys.x += before.x;
    keys.y += before.y;
    if (has_columns()) *reinterpret_cast<float2*>(z(n + 1) + d) = keys;
    return keys;
  }

  /// Q z, z before chunk n, for the rows wgmma_row(0), in x, and wgmma_row(2), in y: each of the four lanes of a row
  /// has a part of the sum.
  __device__ __forceinline__ float2 partial_products(int n, const KeyTile& Q) const {
    const int lane = int(lane_index()), row = tile::warp_in_group() * 16 + lane / 4;
    float2 upper{0, 0}, lower{0, 0};  // two sums each, so that additions wait less for each other
#pragma unroll
    for (int i = 0; i < Shape::kDk / 32; ++i) {
      // Even rows begin with the units 0 to 3, odd ones with 4 to 7: then eight lanes read eight different units.
      const int d = (lane % 4 + (i ^ lane / 4) % 2 * 4 + i / 2 * 8) * 8;
      const __nv_bfloat16* unit = Q.data + Q.unit(row, d);
      const uint4 q_upper = *reinterpret_cast<const uint4*>(unit);
      const uint4 q_lower = *reinterpret_cast<const uint4*>(unit + KeyTile::advance(0, 8, 0));
      const float4 first = *reinterpret_cast<const float4*>(z(n) + d);
      const float4 second = *reinterpret_cast<const float4*>(z(n) + d + 4);
      add(upper, q_upper, first, second);
      add(lower, q_lower, first, second);
    }
    return {upper.x + upper.y, lower.x + lower.y};
  }

 private:
  /// The first of the lane's two columns.
  static __device__ __forceinline__ int first_column() {
    return (tile::warp_in_group() * kPairs + int(lane_index()) % kPairs) * 2;
  }
  /// Whether the lane writes these columns: the first one of those that share them.
  static __device__ __forceinline__ bool has_columns() {
    return int(lane_index()) < kPairs;
  }

  /// Adds eight products.
  static __device__ __forceinline__ void add(float2& sums, uint4 q, float4 first, float4 second) {
    const float2 a = unpack(q.x), b = unpack(q.y), c = unpack(q.z), d = unpack(q.w);
    sums.x += a.x * first.x + b.x * first.z + c.x * second.x + d.x * second.z;
    sums.y += a.y * first.y + b.y * first.w + c.y * second.y + d.y * second.w;
  }

  __device__ __forceinline__ float* z(int n) const {
    return z_ + n % kCopies * Shape::kDk;
  }

  float* z_;  // [kCopies, kDk]
};

}  // namespace tutorial::linear_attention
