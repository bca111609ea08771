#pragma once
/// @file
/// The tiles of one chunk, side by side in shared memory.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "common/tile/chunk_shape.cuh"

namespace tutorial::tile {

/// Q, K [C, Dk] and V [C, Dv].
template <class Shape>
struct ChunkTiles {
  typename Shape::KeyTile Q, K;
  typename Shape::ValueTile V;

  static constexpr int kElements = kChunk * (2 * Shape::kDk + Shape::kDv);
  static constexpr int kBytes = kElements * int(sizeof(__nv_bfloat16));

  /// @param memory kElements in shared memory, aligned to 16 bytes, and to 1024 if its tiles are panels
  __device__ __forceinline__ explicit ChunkTiles(__nv_bfloat16* memory)
      : Q{memory}, K{memory + kChunk * Shape::kDk}, V{memory + 2 * kChunk * Shape::kDk} {}
  /// The same. Kernels with several sets of tiles count bytes from set to set: from an address counted in elements the
  /// compiler makes more instructions.
  __device__ __forceinline__ explicit ChunkTiles(unsigned char* memory)
      : ChunkTiles(reinterpret_cast<__nv_bfloat16*>(memory)) {}
};

/// Only K and V, from which a state is computed.
template <class Shape>
struct StateTiles {
  typename Shape::KeyTile K;
  typename Shape::ValueTile V;

  static constexpr int kElements = kChunk * (Shape::kDk + Shape::kDv);
  static constexpr int kBytes = kElements * int(sizeof(__nv_bfloat16));

  /// @param memory kElements in shared memory, aligned to 16 bytes
  __device__ __forceinline__ explicit StateTiles(__nv_bfloat16* memory) : K{memory}, V{memory + kChunk * Shape::kDk} {}
  /// As ChunkTiles(unsigned char*).
  __device__ __forceinline__ explicit StateTiles(unsigned char* memory)
      : StateTiles(reinterpret_cast<__nv_bfloat16*>(memory)) {}
};

}  // namespace tutorial::tile
