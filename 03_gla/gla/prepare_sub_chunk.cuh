#pragma once
/// @file
/// What prepare() leaves for one sub-chunk (prepare.hpp), computed by one warp. prepare.cu has the idea.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "03_gla/gla/prepare.hpp"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/decay_sub_chunk.cuh"

namespace tutorial::gla {

/// Writes a lane's elements of the rows of a sub-chunk.
template <int kElements>
struct PreparedRows {
  __nv_bfloat16* q;  ///< the lane's elements of the first row
  __nv_bfloat16* k;  ///< likewise
  float* decays;     ///< the lane's elements of the sub-chunk's row
  int stride;        ///< from row to row
  bool has_columns;  ///< the lane's elements exist

  /// @param at number of the sub-chunk, among those of all heads
  /// @param d the lane's first column
  __device__ __forceinline__ PreparedRows(const Bf16Arguments& a, const Prepared& out, std::int64_t at, int d)
      : q(out.q + at * tile::kSubChunk * a.Dk + d),
        k(out.k + at * tile::kSubChunk * a.Dk + d),
        decays(out.decays + at * a.Dk + d),
        stride(a.Dk),
        has_columns(d < a.Dk) {}

  using Bf16Row = decltype(tile::Row<kElements>::q);   ///< in memory
  using FloatRow = decltype(tile::Row<kElements>::g);  ///< in memory

  /// Writes row t of q~.
  __device__ __forceinline__ void query(int t, const float (&row)[kElements]) const {
    if (has_columns) store_global(reinterpret_cast<Bf16Row*>(q + std::int64_t(t) * stride), tile::packed_row(row));
  }
  /// Writes row i of k~.
  __device__ __forceinline__ void key(int i, const float (&row)[kElements]) const {
    if (has_columns) store_global(reinterpret_cast<Bf16Row*>(k + std::int64_t(i) * stride), tile::packed_row(row));
  }
  /// Writes the row of decays.
  __device__ __forceinline__ void decay(const float (&row)[kElements]) const {
    if (has_columns) store_global(reinterpret_cast<FloatRow*>(decays), tile::float_row(row));
  }
};

/// Called by a warp, for its sub-chunk.
/// @tparam kElements neighbouring columns of a lane, 2 or 4
/// @param first position of the sub-chunk
/// @param at its number, among those of all heads
template <int kElements>
__device__ __forceinline__ void prepare_sub_chunk(const Bf16Arguments& a, const Prepared& out, int b, int h, int first,
                                                  std::int64_t at) {
  using namespace tile;
  float scores[8] = {};
#pragma unroll 1
  for (int slice = 0; slice < a.Dk; slice += 32 * kElements) {
    const int d = slice + int(lane_index()) * kElements;
    Row<kElements> all[kSubChunk];
#pragma unroll
    for (int t = 0; t < kSubChunk; ++t) all[t] = load_row<kElements>(a, b, h, first + t, d);
    const auto no_more = [](int) { return Row<kElements>{}; };
    const PreparedRows<kElements> rows(a, out, at, d);
    decay_sub_chunk<kElements>(all, a.L - first, rows.has_columns, no_more, rows, scores);
  }
  auto* units = reinterpret_cast<uint4*>(out.scores + at * kSubChunk * kSubChunk);
  store_global(units + int(lane_index()), packed_scores(scores));
}

}  // namespace tutorial::gla
