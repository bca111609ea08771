#pragma once
/// @file
/// z, the sum of the keys before a chunk, in shared memory: for the normaliser of the walk on Hopper.
///
///     Q z     partial_products()            a matrix times a vector
///     1^T K   add_keys(), sum_of_keys()     the sum of K's rows
///
/// Both are done by the units for ordinary arithmetic, in fp32, on a tile that a bulk copy has brought. Shared memory is
/// busy with the products of warpgroups, so each load from it waits: a lane loads 16 bytes at a time, as few times as it
/// can. A warp of the warpgroup has 16 rows of Q z, four lanes per row, and a quarter of z.

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
  static constexpr int kCopies = 4;                    // z before chunk n takes the place of that before chunk n - 4
  static constexpr int kWarpColumns = Shape::kDk / 4;  // of K, whose sums a warp computes
  static constexpr int kParts = 32 / kWarpColumns;  // lanes that add different rows of the same columns, beside eight
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

  /// The sums over a lane's rows of K of eight columns.
  using LaneKeys = float[8];

  /// keys += the lane's rows of K: every eighth one, of 16 bytes each. Eight lanes read eight rows, whose units lie in
  /// different banks.
  static __device__ __forceinline__ void add_keys(LaneKeys& keys, const KeyTile& K) {
    const int lane = int(lane_index()), column = tile::warp_in_group() * kWarpColumns + lane % kWarpColumns / 8 * 8;
    const __nv_bfloat16* unit = K.data + K.unit(lane / kWarpColumns * 8 + lane % 8, column);
#pragma unroll
    for (int i = 0; i < tile::kChunk; i += 8 * kParts) {
      const uint4 k = *reinterpret_cast<const uint4*>(unit + KeyTile::advance(0, i, 0));
      const float2 pairs[] = {unpack(k.x), unpack(k.y), unpack(k.z), unpack(k.w)};
#pragma unroll
      for (int j = 0; j < 8; ++j) keys[j] += j % 2 == 0 ? pairs[j / 2].x : pairs[j / 2].y;
    }
  }
  /// The sum over all rows of K of one column, number lane % kWarpColumns of the warp's. Eight lanes have parts of the
  /// sums of eight columns. In each of three steps a lane hands over half of its sums and keeps the other half.
  static __device__ __forceinline__ float sum_of_keys(const LaneKeys& keys) {
    const int lane = int(lane_index());
    float four[4], two[2];
#pragma unroll
    for (int j = 0; j < 4; ++j) four[j] = swap_half(keys[j], keys[j + 4], lane, 4);
#pragma unroll
    for (int j = 0; j < 2; ++j) two[j] = swap_half(four[j], four[j + 2], lane, 2);
    float sum = swap_half(two[0], two[1], lane, 1);
#pragma unroll
    for (int flipped = kWarpColumns; flipped < 32; flipped *= 2) sum += shuffle_xor(sum, flipped);
    return sum;
  }
  /// Writes the first Dk sums to global memory. @param sum of the lane's column
  static __device__ __forceinline__ void store(float* to, float sum, int Dk) {
    if (has_column() && column() < Dk) store_global(to + column(), sum);
  }

  /// z before chunk n + 1 = z before chunk n + the chunk's keys; returns the lane's element of it.
  /// @param sum of the lane's column, from sum_of_keys()
  __device__ __forceinline__ float advance(int n, float sum) const {
    sum += z(n)[column()];
    if (has_column()) z(n + 1)[column()] = sum;
    return sum;
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
  /// The column of K whose sum the lane has.
  static __device__ __forceinline__ int column() {
    return tile::warp_in_group() * kWarpColumns + int(lane_index()) % kWarpColumns;
  }
  /// Whether the lane writes it: the first one of those that have it.
  static __device__ __forceinline__ bool has_column() {
    return int(lane_index()) < kWarpColumns;
  }

  /// Lanes whose number has the bit hand over `lower` and get a part of `upper`, the others the reverse; returns the sum
  /// of what the lane keeps and what it gets.
  static __device__ __forceinline__ float swap_half(float lower, float upper, int lane, int bit) {
    const bool keeps_upper = (lane & bit) != 0;
    return (keeps_upper ? upper : lower) + shuffle_xor(keeps_upper ? lower : upper, bit);
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
