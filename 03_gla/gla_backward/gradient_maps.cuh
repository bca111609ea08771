#pragma once
/// @file
/// What bulk copies load and store in the kernels on warpgroups.

#include <algorithm>
#include <cstdint>

#include "03_gla/gla_backward/between.hpp"
#include "common/device/tensor_map.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::gla {

using namespace tile;

/// What a walk for the states reads: S is made of k~ and v, S' of q~ and do.
struct WalkMaps {
  TensorMap keys, values;
};
/// Of the walks for the states. A kernel takes them as `const __grid_constant__ StateMaps`.
struct StateMaps {
  WalkMaps from_start, from_end;
  TensorMap decays;
  TensorMap S, dS;  ///< tiles of the part that a warp has
};

/// Of the kernel for all gradients of a chunk.
struct GradientMaps {
  TensorMap prepared_q, prepared_k, v, d_o, S, dS;
  TensorMap dq, dk, dv, dg;  ///< tiles of a sub-chunk
};

/// The sizes of v as S takes it: without the last position. S at the end is for dg_L alone, and that key's part of the
/// final state has passed no gate.
inline TensorSizes sizes_of_values(const Bf16BackwardArguments& a) {
  return {a.B, a.H, std::max(a.L - 1, 1), a.Dv};
}

/// A tensor in fp32 as one of bf16 with twice as many elements, for stores.
inline View<__nv_bfloat16> as_bf16_pairs(const View<float>& view) {
  return {reinterpret_cast<__nv_bfloat16*>(view.data), 2 * view.stride_b, 2 * view.stride_h, 2 * view.stride_l};
}

/// The map of rows that the first kernel has prepared.
inline TensorMap prepared_map(const Bf16BackwardArguments& a, const Between& x, const __nv_bfloat16* data) {
  const TensorSizes rows{a.B, a.H, std::int64_t(kChunk) * x.prepared.N, a.Dk};
  return tile_map(packed(data, rows.H, rows.L, rows.D), rows, kChunk);
}

/// The map of the states of all chunks, of tiles with so many rows of S^T.
inline TensorMap states_map(const Bf16BackwardArguments& a, const Between& x, const __nv_bfloat16* data, int rows) {
  const TensorSizes states{std::int64_t(a.B) * a.H, x.prepared.N + 1, a.Dv, a.Dk};
  return tile_map(packed(data, states.H, states.L, states.D), states, rows);
}

/// Requires: an empty one_anchor_backward_unsupported().
inline StateMaps state_maps(const Bf16BackwardArguments& a, const Between& x) {
  const TensorSizes decays{a.B, a.H, std::int64_t(kSubChunks) * x.prepared.N, a.Dk};
  return {{prepared_map(a, x, x.prepared.k), tile_map(a.v, sizes_of_values(a), kChunk)},
          {prepared_map(a, x, x.prepared.q), tile_map(a.d_o, tensor_sizes(a, a.Dv), kChunk)},
          float_tile_map(packed<const float>(x.prepared.decays, a.H, decays.L, a.Dk), decays, kSubChunks),
          states_map(a, x, x.S, 16),
          states_map(a, x, x.dS, 16)};
}

/// Requires: an empty one_anchor_backward_unsupported().
template <int kD>
GradientMaps gradient_maps(const Bf16BackwardArguments& a, const Between& x) {
  const TensorSizes keys = tensor_sizes(a, a.Dk), values = tensor_sizes(a, a.Dv), floats = tensor_sizes(a, 2 * a.Dk);
  return {prepared_map(a, x, x.prepared.q),  prepared_map(a, x, x.prepared.k),
          tile_map(a.v, values, kChunk),     tile_map(a.d_o, values, kChunk),
          states_map(a, x, x.S, kD),         states_map(a, x, x.dS, kD),
          tile_map(a.dq, keys, kSubChunk),   tile_map(a.dk, keys, kSubChunk),
          tile_map(a.dv, values, kSubChunk), tile_map(as_bf16_pairs(a.dg), floats, kSubChunk)};
}

}  // namespace tutorial::gla
