#pragma once
/// @file
/// V~ in the registers of the warpgroup that has the state: V from shared memory as fragments of a product's left factor,
/// multiplied by its decays there.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla/chunk_decays.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/split_factors.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {

/// v = V^T, as fragments of the warpgroup's left factor. It can be called when the tile is there, long before
/// decay_values().
/// @param unit first_unit_of_columns(). A loop that keeps it in a register does not compute it again for each chunk
__device__ __forceinline__ void load_values(tile::ValueFragments& v, const tile::PanelTile<64>& V,
                                            int unit = tile::first_unit_of_columns()) {
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) ldmatrix_x4_trans(v[i / 16], V.data + V.advance(unit, i, 0));
}

/// The decays into the state of the positions of a lane's values.
using ValueFactors = SplitFactors[kChunk / 8];

/// Loads them. Like load_values(), it can be called long before decay_values().
__device__ __forceinline__ void load_factors(ValueFactors& factors, const ChunkDecays& decays) {
#pragma unroll
  for (int i = 0; i < kChunk / 8; ++i) factors[i] = decays.pair_to_end(8 * i + int(lane_index()) % 4 * 2);
}
/// v = (diag(2^(b_end - b)) V)^T, from V^T.
__device__ __forceinline__ void decay_values(tile::ValueFragments& v, const ValueFactors& factors) {
#pragma unroll
  for (int i = 0; i < kChunk / 16; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) v[i][j] = scaled(v[i][j], factors[2 * i + j / 2]);
  }
}

/// v = (diag(2^(b_end - b)) V)^T.
__device__ __forceinline__ void load_decayed_values(tile::ValueFragments& v, const tile::PanelTile<64>& V,
                                                    const ChunkDecays& decays) {
  ValueFactors factors;
  load_values(v, V);
  load_factors(factors, decays);
  decay_values(v, factors);
}

/// What a chunk does to the state: S = whole S + v K.
struct StateFactors {
  tile::ValueFragments v;  ///< (diag(2^(b_end - b)) V)^T
  float whole;             ///< 2^b_end
};

/// Loads them.
__device__ __forceinline__ void load_state_factors(StateFactors& factors, const tile::PanelTile<64>& V,
                                                   const ChunkDecays& decays) {
  load_decayed_values(factors.v, V, decays);
  factors.whole = decays.whole();
}

}  // namespace tutorial::simple_gla
