#pragma once
/// @file
/// The normaliser of the walk on Hopper: z, the sum of the keys before a chunk, as one more key of the chunk.
///
///     scores = Q [K; z]^T        columns 0 to 63: Q K^T, of which P is made; column 64: Q z
///
/// The product of the scores reads Q anyway, and its width may be any multiple of 8. So z lies below the 64 keys in the
/// tile of K, and a product of width 72 computes Q z, too. This makes the product an eighth larger and takes no further
/// instruction. A single row in bf16 would round z to 8 bits. The tile has seven more unused rows, so a second row
/// holds the rounding error of the first.
///
/// What remains to be computed is 1^T K, the sum of a chunk's keys. KeySums computes it on ordinary arithmetic units,
/// in fp32: its warps read K once, in units of 16 bytes, and each lane ends with one column.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/hide_from_compiler.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/panel_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::linear_attention {

/// Q [C, Dk], K [C + 8, Dk] and V [C, Dv] of a chunk. The rows of K below those of the chunk are for z.
template <class Shape>
struct TilesWithZ {
  typename Shape::KeyTile Q;
  tile::PanelTile<Shape::kDk, tile::kChunk + 8> K;
  typename Shape::ValueTile V;

  static constexpr int kBytes = tile::ChunkTiles<Shape>::kBytes + 8 * Shape::kDk * int(sizeof(__nv_bfloat16));

  /// @param memory kBytes in shared memory, aligned to 1024 bytes
  __device__ __forceinline__ explicit TilesWithZ(unsigned char* memory) {
    Q = {reinterpret_cast<__nv_bfloat16*>(memory)};
    K = {Q.data + tile::kChunk * Shape::kDk};
    V = {K.data + (tile::kChunk + 8) * Shape::kDk};
  }
};

/// Computes sums of keys by kWarps warps of a warpgroup. Each lane has one column, column().
template <int kDk>
class KeySums {
 public:
  static constexpr int kWarps = kDk / 32;

  /// The column of this lane: one of the 32 of its warp.
  static __device__ __forceinline__ int column() {
    const int lane = int(lane_index());
    return tile::warp_in_group() * 32 + lane % 4 * 8 + (lane & 4) + (lane & 8) / 4 + lane / 16;
  }

  /// The sum of the keys of a chunk in this lane's column. All lanes of the warp call it.
  template <int kRows>
  static __device__ __forceinline__ float of_chunk(const tile::PanelTile<kDk, kRows>& K) {
    // Eight lanes read at a time: four units of two rows. Rows that are four apart have these units in different halves
    // of a panel's 128 bytes.
    const int lane = int(lane_index());
    const int mine = K.unit((lane & 4) + lane / 8, tile::warp_in_group() * 32 + lane % 4 * 8);
    uint4 units[tile::kChunk / 8];
#pragma unroll
    for (int i = 0; i < tile::kChunk / 8; ++i) {
      units[i] = *reinterpret_cast<const uint4*>(K.data + K.advance(mine, 8 * i, 0));
    }
    float sums[8] = {};
#pragma unroll
    for (const uint4& unit : units) {
      add(sums[0], sums[1], unit.x);
      add(sums[2], sums[3], unit.y);
      add(sums[4], sums[5], unit.z);
      add(sums[6], sums[7], unit.w);
    }
    // The eight lanes with the same columns: in each step a lane hands over half of its sums.
    hand_over<4>(sums, 4);
    hand_over<2>(sums, 8);
    hand_over<1>(sums, 16);
    return sums[0];
  }

  /// Writes this lane's column of z as two bf16 rows, whose sum is z.
  static __device__ __forceinline__ void put(const tile::PanelTile<kDk, tile::kChunk + 8>& K, float z) {
    const int d = column();
    const __nv_bfloat16 high = __float2bfloat16(z);
    store_for_copies(K.data + K.unit(tile::kChunk, d / 8 * 8) + d % 8, high);
    store_for_copies(K.data + K.unit(tile::kChunk + 1, d / 8 * 8) + d % 8,
                     __float2bfloat16(z - __bfloat162float(high)));
  }

 private:
  static __device__ __forceinline__ void add(float& first, float& second, std::uint32_t two) {
    first += unpack(two).x;
    second += unpack(two).y;
  }

  /// Adds the first kKept sums of this lane and of the lane at distance `bit`, or the next kKept if this lane's number
  /// has this bit. A mask selects the sums. From a condition the compiler would make branches, and a shuffle between
  /// lanes of two branches takes a hundred times as long.
  template <int kKept>
  static __device__ __forceinline__ void hand_over(float (&sums)[8], int bit) {
    const std::uint32_t mask = hide_from_compiler(int(lane_index()) & bit ? -1 : 0);
#pragma unroll
    for (int i = 0; i < kKept; ++i) {
      const std::uint32_t first = __float_as_uint(sums[i]), second = __float_as_uint(sums[i + kKept]);
      const std::uint32_t exchange = (first ^ second) & mask;
      sums[i] = __uint_as_float(first ^ exchange) + shuffle_xor(__uint_as_float(second ^ exchange), bit);
    }
  }
};

}  // namespace tutorial::linear_attention
