#pragma once
/// @file
/// A chunk as prepare() has left it, and its V, in the shared memory of `warpgroup_walk`: by bulk copies, as products
/// of warpgroups read it.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "03_gla/gla/prepare.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::gla {

using namespace tile;

inline constexpr int kDk = 128;  ///< rows of S, at most

/// What prepare() has left, and V.
struct PreparedMaps {
  TensorMap q, k, v, scores, decays;
};

/// The decays of a chunk's sub-chunks, one row each.
using DecayPanels = FloatPanels<kSubChunks, kDk>;

/// The decays of sub-chunk r for the rows of S that the calling thread has.
__device__ __forceinline__ void load_decays(StateDecays<kDk>& two, const DecayPanels& decays, int r) {
  const int first = decays.place(r, int(lane_index()) % 4 * 2);
#pragma unroll
  for (int d = 0; d < kDk; d += 8) {
    two[d / 8] = *reinterpret_cast<const float2*>(decays.data + decays.advance(first, d));
  }
}

/// The tiles of one chunk.
struct WarpgroupTiles {
  PanelTile<kDk> Q, K;
  PanelTile<64> V, P;  ///< P: P_ti of a sub-chunk in row i, of 16 columns t
  DecayPanels decays;

  static constexpr unsigned kTileBytes = 4 * (kDk + 64) * kChunk;
  static constexpr unsigned kLoadedBytes = kTileBytes + DecayPanels::kLoadedBytes;  ///< what a barrier expects
  static constexpr int kBytes = int(kTileBytes) + DecayPanels::kBytes;

  /// @param memory kBytes in shared memory, aligned to 1024
  __device__ __forceinline__ explicit WarpgroupTiles(unsigned char* memory)
      : Q{reinterpret_cast<__nv_bfloat16*>(memory)},
        K{Q.data + kChunk * kDk},
        V{K.data + kChunk * kDk},
        P{V.data + V.kPanelElements},
        decays{reinterpret_cast<float*>(P.data + P.kPanelElements)} {}

  /// Starts the copies of the chunk from position t on. Called by one thread.
  /// @param column the first of V's columns
  __device__ __forceinline__ void load(const PreparedMaps& maps, Barrier& barrier, int b, int h, int t,
                                       int column) const {
    load_panels(K, maps.k, barrier, {.position = t, .head = h, .batch = b});
    load_panels(V, maps.v, barrier, {.column = column, .position = t, .head = h, .batch = b});
    load_panels(decays, maps.decays, barrier, {.position = t / kSubChunk, .head = h, .batch = b});
    load_panels(Q, maps.q, barrier, {.position = t, .head = h, .batch = b});
    load_panels(P, maps.scores, barrier, {.position = t, .head = h, .batch = b});
  }
};

/// The maps of what prepare() has left, and of v.
inline PreparedMaps prepared_maps(const Bf16Arguments& a, const Prepared& x) {
  const TensorSizes rows{a.B, a.H, std::int64_t(kChunk) * x.N, a.Dk}, scores{a.B, a.H, rows.L, kSubChunk},
      decays{a.B, a.H, std::int64_t(kSubChunks) * x.N, a.Dk};
  const auto map = [](const auto* data, const TensorSizes& sizes) {
    return tile_map(packed(data, sizes.H, sizes.L, sizes.D), sizes, kChunk);
  };
  return {map(x.q, rows), map(x.k, rows), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk), map(x.scores, scores),
          float_tile_map(packed<const float>(x.decays, a.H, decays.L, a.Dk), decays, kSubChunks)};
}

}  // namespace tutorial::gla
