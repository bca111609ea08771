#pragma once
/// @file
/// A chunk with gates in shared memory, as walk_sub_chunk.cuh reads it: q~ and k~, which contain their decays within
/// their sub-chunk, the decays of whole sub-chunks, the scores within each sub-chunk, and V.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/ldmatrix.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::tile {

/// The tiles of one chunk. The tiles that a state is computed from come first, so that a kernel without outputs can
/// leave the rest out.
template <class Shape>
struct DecayedTiles {
  typename Shape::KeyTile K;
  typename Shape::ValueTile V;
  float* decays;  ///< [kSubChunks, kDk]
  typename Shape::KeyTile Q;
  __nv_bfloat16* scores;  ///< [kSubChunks, 16, 16]: P_ti of a sub-chunk in [i][t]

  static constexpr int kBytesForStates = 2 * kChunk * (Shape::kDk + Shape::kDv) + 4 * kSubChunks * Shape::kDk;
  static constexpr int kBytes = kBytesForStates + 2 * kChunk * Shape::kDk + 2 * kChunk * kSubChunk;

  /// Lays the tiles out in shared memory from this address on. They take kBytes, aligned to 16.
  __device__ __forceinline__ explicit DecayedTiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)},
        V{K.data + kChunk * Shape::kDk},
        decays(reinterpret_cast<float*>(V.data + kChunk * Shape::kDv)),
        Q{reinterpret_cast<__nv_bfloat16*>(memory + kBytesForStates)},
        scores(Q.data + kChunk * Shape::kDk) {}

  /// The scores of a sub-chunk's own pairs as an A fragment. They lie transposed, queries along the rows.
  __device__ __forceinline__ void load_own_scores(std::uint32_t (&p)[4], int sub_chunk) const {
    const int lane = fresh_lane();
    const int unit = (sub_chunk * kSubChunk + lane / 16 * 8 + lane % 8) * 2 + lane / 8 % 2;
    ldmatrix_x4_trans(p, scores + unit * 8);
  }

  /// The decays of a sub-chunk for the rows d and d + 1 of the state; d is even.
  __device__ __forceinline__ float2 decay(int sub_chunk, int d) const {
    return *reinterpret_cast<const float2*>(decays + sub_chunk * Shape::kDk + d);
  }
};

}  // namespace tutorial::tile
