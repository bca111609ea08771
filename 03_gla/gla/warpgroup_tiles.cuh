#pragma once
/// @file
/// A chunk as prepare() has left it, and its V, in the shared memory of `warpgroup_walk`: by bulk copies, as products of
/// warpgroups read it.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "03_gla/gla/prepared.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::gla {

using namespace tile;

inline constexpr int kDk = 128;        ///< rows of S, at most
inline constexpr int kHalf = kDk / 2;  ///< those that a warpgroup has

/// What prepare() has left, and V.
struct PreparedMaps {
  TensorMap q, k, v, scores, decays;
};

/// The tiles of one chunk.
struct WarpgroupTiles {
  PanelTile<kDk> Q, K;
  PanelTile<64> V, P;  ///< P: of key i in row i, 16 columns t
  FloatPanels<kSubChunks, kDk> decays;

  static constexpr int kBytes = 2 * (2 * kDk + 64 + 64) * kChunk + FloatPanels<kSubChunks, kDk>::kBytes;
  static constexpr unsigned kLoadedBytes =
      2 * (2 * kDk + 64 + 64) * kChunk + FloatPanels<kSubChunks, kDk>::kLoadedBytes;

  __device__ __forceinline__ explicit WarpgroupTiles(__nv_bfloat16* memory)
      : Q{memory},
        K{Q.data + kChunk * kDk},
        V{K.data + kChunk * kDk},
        P{V.data + V.kPanelElements},
        decays{reinterpret_cast<float*>(P.data + P.kPanelElements)} {}

  __device__ __forceinline__ void load(const PreparedMaps& maps, Barrier& barrier, int b, int h, int t,
                                       int column) const {
    barrier.arrive_expect(kLoadedBytes);
    load_panels(K, maps.k, barrier, {.position = t, .head = h, .batch = b});
    load_panels(V, maps.v, barrier, {.column = column, .position = t, .head = h, .batch = b});
    load_panels(decays, maps.decays, barrier, {.position = t / kSubChunk, .head = h, .batch = b});
    load_panels(Q, maps.q, barrier, {.position = t, .head = h, .batch = b});
    load_panels(P, maps.scores, barrier, {.position = t, .head = h, .batch = b});
  }

  /// The decays of sub-chunk r for the rows of S that the calling thread has.
  /// @param half of the warpgroup
  __device__ __forceinline__ void load_decays(StateDecays<kHalf>& two, int r, int half) const {
    const int first = decays.place(r, half * kHalf + int(lane_index()) % 4 * 2);
#pragma unroll
    for (int d = 0; d < kHalf; d += 8) {
      two[d / 8] = *reinterpret_cast<const float2*>(decays.data + decays.advance(first, d));
    }
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
