#pragma once
/// @file
/// A chunk in shared memory, as the stages 7 and 8 walk over it: what prepare() has made of its gates, q and k, and its
/// V.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/async_tile.cuh"
#include "02_chunkwise/chunk_products.cuh"
#include "03_gla/gla/prepared.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/opaque.cuh"

namespace tutorial::gla {

using linear_attention::kChunk;
using linear_attention::kThreads;

inline constexpr int kSubChunks = kChunk / kSubChunk;

/// One chunk in shared memory, as prepare() has left it, and its V.
template <class Shape>
struct Tiles {
  typename Shape::KeyTile K;
  typename Shape::ValueTile V;
  float* decays;  // [kSubChunks, kDk]
  typename Shape::KeyTile Q;
  __nv_bfloat16* scores;  // [kSubChunks, 2, 16, 8]

  static constexpr int kBytesForStates = 2 * kChunk * (Shape::kDk + Shape::kDv) + 4 * kSubChunks * Shape::kDk;
  static constexpr int kBytes = kBytesForStates + 2 * kChunk * Shape::kDk + 2 * kChunk * kSubChunk;

  /// Lays the tiles out in shared memory from this address on: kBytes, aligned to 16.
  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)},
        V{K.data + kChunk * Shape::kDk},
        decays(reinterpret_cast<float*>(V.data + kChunk * Shape::kDv)),
        Q{reinterpret_cast<__nv_bfloat16*>(memory + kBytesForStates)},
        scores(Q.data + kChunk * Shape::kDk) {}

  /// Starts the copies of K, V and decays of chunk n, by all threads of the block; the caller commits and waits.
  __device__ __forceinline__ void load_for_states(const HalfArguments& a, const Prepared& prepared, int b, int h, int n,
                                                  int first_column, int columns) const {
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * prepared.N + n;
    linear_attention::load_tile_async(K, prepared.k + chunk * kChunk * a.Dk, a.Dk, kChunk, a.Dk);
    linear_attention::load_tile_async(V, a.v.row(b, h, std::int64_t(n) * kChunk) + first_column, a.v.stride_l,
                                      a.L - n * kChunk, columns);
    constexpr int kUnits = Shape::kDk / 4;
    const float* source = prepared.decays + chunk * kSubChunks * a.Dk;
    for (int i = opaque(int(threadIdx.x)); i < kSubChunks * kUnits; i += kThreads) {
      const int row = i / kUnits, d = i % kUnits * 4;
      cp_async<16>(decays + row * Shape::kDk + d, source + row * a.Dk + d, d < a.Dk);
    }
  }
  /// Those of the rest.
  __device__ __forceinline__ void load_for_outputs(const HalfArguments& a, const Prepared& prepared, int b, int h,
                                                   int n) const {
    const std::int64_t chunk = (std::int64_t(b) * a.H + h) * prepared.N + n;
    linear_attention::load_tile_async(Q, prepared.q + chunk * kChunk * a.Dk, a.Dk, kChunk, a.Dk);
    static_assert(kChunk * kSubChunk == 8 * kThreads);
    const int mine = opaque(int(threadIdx.x)) * 8;
    cp_async<16>(scores + mine, prepared.scores + chunk * kChunk * kSubChunk + mine);
  }

  /// The scores of a sub-chunk's own pairs as an A fragment. They lie transposed, queries along the rows.
  __device__ __forceinline__ void load_own_scores(std::uint32_t (&p)[4], int sub_chunk) const {
    const int lane = linear_attention::fresh_lane();
    const int unit = sub_chunk * 2 * kSubChunk + lane / 8 % 2 * kSubChunk + lane / 16 * 8 + lane % 8;
    ldmatrix_x4_trans(p, scores + unit * 8);
  }
};

}  // namespace tutorial::gla
