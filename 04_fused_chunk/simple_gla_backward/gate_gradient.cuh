#pragma once
/// @file
/// What gates add to the chunks of chapter 02's backward pass: decays in either direction, and dg.
///
///     db_t = q_t . dq_t - k_t . dk_t,      dg_t = db_t + ... + db_e + dg_{e+1}      e: the chunk's last position
///
/// dg_{e+1} is <S_e, dS>, the product of the state after the chunk with the gradient that reaches it from behind.
/// q_t . dq_t and k_t . dk_t are computed from the accumulators of dq and dk, before these are rounded to bf16. For the
/// pairs of positions of one chunk, both kernels round the same numbers R_ti = (do_t . v_i) 2^(b_t - b_i) to bf16. So
/// what a pair adds to the one and takes from the other cancels but for errors of fp32, as it does in the formula.
///
/// The largest of what would have to cancel passes no gate at all: the pairs (t, t), and what the last position of all
/// writes to the final state. Both are left out, of dg_{e+1}, too. Then each term contains a gate: where all gates are
/// of one strength, so are dg and the terms of its sum.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_shape.cuh"

namespace tutorial::simple_gla {

/// A chunk's decays in a walk's direction. From the end, what has been the way to the chunk's end is the way from the
/// state, and what has been the way from its start is the way into the state.
struct DirectedDecays {
  SharedSums sums;
  bool is_reversed;
  int last;     ///< the last position of all, seen from the chunk's first
  float whole;  ///< of the state, over the chunk
  /// From the chunk's b.
  __device__ __forceinline__ DirectedDecays(const SharedSums& sums, bool is_reversed, int last)
      : sums(sums), is_reversed(is_reversed), last(last), whole(sums.from_start(kChunk - 1)) {}
  /// From the state that the walk brings to position t.
  __device__ __forceinline__ float from_state(int t) const {
    return is_reversed ? sums.between(t, kChunk - 1) : sums.from_start(t);
  }
  /// From position t into the state that the walk leaves. S_L is for dg alone, so the last position adds nothing to it.
  __device__ __forceinline__ float into_state(int t) const {
    return is_reversed ? sums.from_start(t) : t == last ? 0 : sums.between(t, kChunk - 1);
  }
  /// The same of the positions i + p and i + p + 1, p = 2 (lane % 4), as update_state() asks for them.
  __device__ __forceinline__ float2 of_pair(int i) const {
    const int t = i + int(lane_index()) % 4 * 2;
    return make_float2(into_state(t), into_state(t + 1));
  }
};

/// The products of the rows of a gradient's tile with those of its partner, first in a part per warp.
struct TileProducts {
  static constexpr int kBytes = (tile::kWarps + 1) * kChunk * int(sizeof(float));

  float* own;    ///< [C] in shared memory, the scores of positions with themselves
  float* parts;  ///< [kWarps, C] in shared memory

  /// Each warp writes the products over its columns. A barrier must follow.
  template <class Shape>
  __device__ __forceinline__ void multiply(typename Shape::Output& O, const typename Shape::ValueTile& partner) const {
    tile::RowSums products = {};
    tile::add_row_products<Shape>(products, 1, O, partner);
    tile::store_parts(parts + tile::warp_index() * kChunk, products);
  }
  /// Adds up the warps' parts. @param to where the product of the chunk's first row goes @param rows that exist
  __device__ __forceinline__ void store(float* to, int rows) const {
    const int t = hide_from_compiler(int(threadIdx.x));
    if (t >= min(rows, kChunk)) return;
    store_global(to + t, parts[t] + parts[kChunk + t] + parts[2 * kChunk + t] + parts[3 * kChunk + t]);
  }
};

/// The sums for dg of a chunk, from its end, by one warp.
struct SumsFromEnd {
  int first;      ///< of the lane's two positions; lane 0 has the last two
  float sum, db;  ///< the sum from that position to the chunk's end, and db of it

  /// @param t the chunk's first position
  __device__ __forceinline__ SumsFromEnd(const Bf16BackwardArguments& a, const RowProducts& products, int b, int h,
                                         int t)
      : first(t + kChunk - 2 - 2 * int(lane_index())) {
    const auto difference = [&](int i) {
      float sum = 0;
#pragma unroll
      for (int tile = 0; tile < RowProducts::kMostTiles; ++tile) {  // all loads are under way at once
        if (tile >= products.tiles || i >= a.L) continue;
        const std::int64_t place = tile * products.per_tile + (std::int64_t(b) * a.H + h) * a.L + i;
        sum += load_for_update(products.read + place) - (i < a.L - 1 ? load_for_update(products.written + place) : 0);
      }
      return sum;
    };
    db = difference(first);
    sum = warp_prefix_sum(db + difference(first + 1));
  }
  /// The sum over the chunk.
  __device__ __forceinline__ float whole() const {
    return __shfl_sync(kAllLanes, sum, 31);
  }
  /// Writes dg. @param dg_after dg of the position behind the chunk
  __device__ __forceinline__ void store(const Bf16BackwardArguments& a, int b, int h, float dg_after) const {
    const float dg = dg_after + sum;
    if (first < a.L) store_global(a.dg.row(b, h, first), dg);
    if (first + 1 < a.L) store_global(a.dg.row(b, h, first + 1), dg - db);
  }
};

}  // namespace tutorial::simple_gla
