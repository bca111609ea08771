#pragma once
/// @file
/// Starts the copies of a chunk as prepare() has left it, and of its V, to shared memory.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "03_gla/gla/prepare.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/tile/decayed_tiles.cuh"
#include "common/tile/load_tile.cuh"

namespace tutorial::gla {

/// Starts the copies of what a state is made of, K, V and decays of the chunk that begins at position t. All threads of
/// the block call it; the caller commits and waits.
template <class Shape>
__device__ __forceinline__ void load_for_states(const tile::DecayedTiles<Shape>& tiles, const Bf16Arguments& a,
                                                const Prepared& prepared, int b, int h, int t, int first_column,
                                                int columns) {
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * prepared.N + t / tile::kChunk;
  tile::load_tile_async(tiles.K, prepared.k + chunk * tile::kChunk * a.Dk, a.Dk, tile::kChunk, a.Dk);
  tile::load_tile_async(tiles.V, a.v.row(b, h, t) + first_column, a.v.stride_l, a.L - t, columns);
  constexpr int kUnits = Shape::kDk / 4;
  const float* source = prepared.decays + chunk * tile::kSubChunks * a.Dk;
  for (int i = hide_from_compiler(int(threadIdx.x)); i < tile::kSubChunks * kUnits; i += tile::kThreads) {
    const int row = i / kUnits, d = i % kUnits * 4;
    cp_async<16>(tiles.decays + row * Shape::kDk + d, source + row * a.Dk + d, d < a.Dk);
  }
}
/// Starts the copies of what only outputs need, Q and the scores of sub-chunks with themselves.
template <class Shape>
__device__ __forceinline__ void load_for_outputs(const tile::DecayedTiles<Shape>& tiles, const Bf16Arguments& a,
                                                 const Prepared& prepared, int b, int h, int t) {
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * prepared.N + t / tile::kChunk;
  tile::load_tile_async(tiles.Q, prepared.q + chunk * tile::kChunk * a.Dk, a.Dk, tile::kChunk, a.Dk);
  static_assert(tile::kChunk * tile::kSubChunk == 8 * tile::kThreads);
  const int mine = hide_from_compiler(int(threadIdx.x)) * 8;
  cp_async<16>(tiles.scores + mine, prepared.scores + chunk * tile::kChunk * tile::kSubChunk + mine);
}

}  // namespace tutorial::gla
