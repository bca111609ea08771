#pragma once
/// @file
/// The states that chunks start from in device memory, in bf16 and in the order of the mma fragments that read them: 16
/// rows and 16 columns are 16 bytes for each of 32 lanes. One warp writes them and another reads them in this order.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::simple_gla {

/// The states of one chunk of one head.
struct StoredState {
  uint4* data;  ///< [Dv / 16, Dk / 16, 32]
  int Dk, Dv;

  /// @param states [B H, N, Dv / 16, Dk / 16, 32] @param head b H + h @param n the chunk
  __device__ __forceinline__ StoredState(uint4* states, const Bf16Arguments& a, int head, int n) : Dk(a.Dk), Dv(a.Dv) {
    const std::int64_t chunk = std::int64_t(head) * ((a.L - 1) / tile::kChunk + 1) + n;
    data = states + chunk * (Dv / 16) * (Dk / 16) * 32;
  }
  /// The lane's part of 16 rows from d on and 16 columns from j on.
  __device__ __forceinline__ uint4* fragment(int d, int j) const {
    return data + (std::int64_t(j / 16) * (Dk / 16) + d / 16) * 32 + lane_index();
  }
};

/// Writes the warp's columns of S, restricted to rows and columns that exist.
/// @param d,j the block's first row and column
template <class Shape>
__device__ __forceinline__ void store_fragments(const StoredState& to, const typename Shape::State& S, int d, int j) {
  const int column = j + tile::warp_index() * Shape::kWarpColumns;
#pragma unroll
  for (int i = 0; i < Shape::kDk / 16; ++i) {
    if (d + i * 16 >= to.Dk || column >= to.Dv) continue;
    const auto &upper = S[0][2 * i], &lower = S[0][2 * i + 1];
    store_global(to.fragment(d + i * 16, column), make_uint4(pack(upper[0], upper[1]), pack(lower[0], lower[1]),
                                                             pack(upper[2], upper[3]), pack(lower[2], lower[3])));
  }
}

/// O += Q S, the warp's columns: tile::add_from_state() with the fragments of S from memory.
/// @param j the block's first column
template <class Shape>
__device__ __forceinline__ void add_from_stored_state(typename Shape::Output& O, const typename Shape::KeyTile& Q,
                                                      const StoredState& S, int j) {
  const int lane = int(lane_index()), column = j + int(threadIdx.x) / 32 * Shape::kWarpColumns;
  const int q_unit = Q.unit(lane % 16, lane / 16 * 8);
#pragma unroll 4
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    uint4 s[Shape::kWarpColumns / 16];
#pragma unroll
    for (int i = 0; i < Shape::kWarpColumns / 16; ++i) {
      const bool is_there = d * 16 < S.Dk && column + i * 16 < S.Dv;
      s[i] = is_there ? load_global(S.fragment(d * 16, column + i * 16)) : uint4{};
    }
#pragma unroll
    for (int t = 0; t < tile::kChunk / 16; ++t) {
      std::uint32_t q[4];
      ldmatrix_x4(q, Q.data + Q.advance(q_unit, t * 16, d * 16));
#pragma unroll
      for (int i = 0; i < Shape::kWarpColumns / 16; ++i) {
        mma_m16n8k16(O[t][2 * i], q, {s[i].x, s[i].y});
        mma_m16n8k16(O[t][2 * i + 1], q, {s[i].z, s[i].w});
      }
    }
  }
}

}  // namespace tutorial::simple_gla
