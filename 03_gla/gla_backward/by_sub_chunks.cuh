#pragma once
/// @file
/// The gradients of a chunk from sub-chunk to sub-chunk, with an anchor at the end of each sub-chunk that does not
/// forget too much: `anchored_pairs` has the idea. `one_anchor` takes this way where a chunk forgets too much.

#include <cuda_runtime.h>

#include <cstdint>

#include "03_gla/gla_backward/chunk_gradients.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/movmatrix.cuh"

namespace tutorial::gla {

/// The decays of a chunk's sub-chunks in one column, that of the thread.
struct ColumnDecays {
  float D[kSubChunks];
};

/// Loads what prepare() leaves for a chunk; 1 in columns that do not exist.
__device__ __forceinline__ ColumnDecays load_decays(const Bf16BackwardArguments& a, const Between& between,
                                                    const ChunkPlace& at) {
  const float* decays = at.decays(between, a.Dk);
  const int d = int(threadIdx.x);
  ColumnDecays of_column;
#pragma unroll
  for (int r = 0; r < kSubChunks; ++r) of_column.D[r] = d < a.Dk ? load_for_update(decays + r * a.Dk + d) : 1.0f;
  return of_column;
}

/// Computes the table of decays from those of the sub-chunks.
template <int kD>
__device__ __forceinline__ void fill_decays(const AnchoredTiles<kD>& tiles, const ColumnDecays& of_column) {
  const int d = int(threadIdx.x);
  if (d >= kD) return;
  const auto& D = of_column.D;
#pragma unroll
  for (int r = 0; r < kSubChunks; ++r) tiles.decays[r * kD + d] = D[r];
  tiles.decays[kFirstTwo * kD + d] = D[1] * D[2];
  tiles.decays[kLastTwo * kD + d] = D[2] * D[3];
  tiles.decays[kLastThree * kD + d] = D[1] * D[2] * D[3];
  tiles.decays[kOne * kD + d] = 1;
}

/// A warp's 16 keys as fragments of A.
template <int kD>
using KeyFragments = std::uint32_t[kD / 16][4];

/// The warp's 16 keys, columns d to d + 15, times a row of the table of decays, as a fragment of A.
template <int kD>
__device__ __forceinline__ void load_keys(std::uint32_t (&part)[4], const AnchoredTiles<kD>& tiles, int decay_row,
                                          int d) {
  const int lane = fresh_lane(), unit = tiles.k.unit(warp_in_group() * 16 + lane % 16, lane / 16 * 8);
  const float* decays = tiles.decays + decay_row * kD + lane % 4 * 2 + d;
  ldmatrix_x4(part, tiles.k.data + tiles.k.advance(unit, 0, d));
#pragma unroll
  for (int i = 0; i < 4; ++i) part[i] = scaled(part[i], *reinterpret_cast<const float2*>(decays + i / 2 * 8));
}

/// The same of all columns.
template <int kD>
__device__ __forceinline__ void load_keys(KeyFragments<kD>& keys, const AnchoredTiles<kD>& tiles, int decay_row) {
#pragma unroll
  for (int d = 0; d < kD; d += 16) load_keys(keys[d / 16], tiles, decay_row, d);
}

inline constexpr float kLeastPower = -80;  ///< 2 to that is the least decay of rows that have an anchor

/// Whether no column forgets too much in a sub-chunk for an anchor at its end. @param decays of the sub-chunk, [kD]
template <int kD>
__device__ __forceinline__ bool has_anchor(const float* decays) {
  const float least = exp2f(kLeastPower);
  bool allows = true;
#pragma unroll
  for (int d = 0; d < kD; d += 32) allows = allows && decays[d + fresh_lane()] >= least;
  return __all_sync(kAllLanes, allows);
}

/// Makes a sub-chunk's own scores zero on the diagonal and above.
__device__ __forceinline__ void keep_pairs(WarpgroupScores& scores, int s) {
  const int lane = fresh_lane();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
    scores[s * 8 + i] = column < row ? scores[s * 8 + i] : 0.0f;
  }
}

/// The transposed of a left factor of 16 columns.
__device__ __forceinline__ void load_transposed(std::uint32_t (&factor)[4], const uint4& x) {
  factor[0] = transpose_8x8(x.x), factor[1] = transpose_8x8(x.z), factor[2] = transpose_8x8(x.y),
  factor[3] = transpose_8x8(x.w);
}

/// Multiplies each column by a decay.
template <int kD>
__device__ __forceinline__ void decay_columns(float (&sums)[kD / 2], const float* decays) {
  decays += fresh_lane() % 4 * 2;
#pragma unroll
  for (int i = 0; i < kD / 2; i += 4) {
    const float2 two = *reinterpret_cast<const float2*>(decays + i * 2);
    sums[i] *= two.x;
    sums[i + 1] *= two.y;
    sums[i + 2] *= two.x;
    sums[i + 3] *= two.y;
  }
}

/// 16 columns of scores as a factor, or zeros. @param k the first column
template <int kSums>
__device__ __forceinline__ void to_factor(std::uint32_t (&factor)[4], const float (&scores)[kSums], int k,
                                          bool counts) {
  wgmma_fragment(factor, scores, k);
#pragma unroll
  for (std::uint32_t& two : factor) two = counts ? two : 0u;
}

/// The gradients of a chunk, with an anchor at the end of each sub-chunk that has one, after start_loads().
/// @param of_sub_chunks their decays
/// @param end the state after the chunk
template <int kD>
__device__ __forceinline__ void gradients_by_sub_chunks(const Bf16BackwardArguments& a, const Between& between,
                                                        const AnchoredTiles<kD>& tiles, ChunkBarriers& barriers,
                                                        const GradientMaps& maps, const ChunkPlace& at,
                                                        const ColumnDecays& of_sub_chunks, const StateUnits<kD>& end) {
  const int b = at.b, h = at.h, warp = at.warp, first = at.first, rows = at.rows;
  std::uint32_t own_scores[4];  // P_rr^T
  {
    const int lane = fresh_lane();
    const auto* scores = reinterpret_cast<const std::uint32_t*>(
        between.prepared.scores + (std::int64_t(at.chunk) * kChunk + warp * kSubChunk + lane / 4) * kSubChunk +
        lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) own_scores[i] = load_early(scores + i % 2 * 8 * (kSubChunk / 2) + i / 2 * 4);
  }
  __syncthreads();

  bool anchored;  // the pairs of the warp's sub-chunk
  float from_end[kD / 2];
  {
    float dv[kD / 2];
    {
      KeyFragments<kD> keys;
      WarpgroupScores products;
      barriers.end_full.wait(0);
      wgmma_fence(from_end);
      start_reads<kD>(from_end, tiles.v, tiles.state);
      fill_decays(tiles, of_sub_chunks);
      multiply_states(end, tiles);
      __syncthreads();
      anchored = has_anchor<kD>(tiles.decays + warp * kD);
      barriers.rows_full.wait(0);
      load_keys(keys, tiles, warp == 0 ? kLastThree : warp == 1 ? kLastTwo : warp == 2 ? 3 : kOne);
      wgmma_fence(dv, products, keys);
      const auto s = k_along_rows(tiles.state);
#pragma unroll
      for (int d = 0; d < kD; d += 16) wgmma<kD>(dv, keys[d / 16], s.along_k(d), d > 0);
      start_scores(products, tiles.d_o, tiles.v);
      wgmma_commit();
      wgmma_wait<0>(from_end, dv, products, keys);
#pragma unroll
      for (int s = 0; s < kSubChunks; ++s) {
        if (warp < s) continue;
        if (warp == s) {
          put_own(tiles.products + s * kSubChunk * kSubChunk, products, s, a.scale);
          keep_pairs(products, s);
        }
        std::uint32_t R[4];
        to_factor(R, products, s * kSubChunk, warp > s || anchored);
        tiles.put_factor(R, warp, s);
      }
    }
    __syncthreads();  // S' is no longer needed
    load_start(tiles, barriers, maps, at);
    prefetch_rows<kD>(a.g, b, h, first, rows, a.Dk);
    if (!anchored) {
      prefetch_rows<kD>(a.q, b, h, first, rows, a.Dk);
      prefetch_rows<kD>(a.k, b, h, first, rows, a.Dk);
    }
    std::uint32_t R[kSubChunks][4], P[kSubChunks][4];  // R_sr^T and P_sr^T, zeros for s <= r, but P_rr^T
    {
      // The compiler would keep places of factors in registers from product to product.
      const AnchoredTiles<kD> again(tiles.state.data + hide_from_compiler(0));
      const auto q = k_along_rows(again.q), k = k_along_rows(again.k);
      KeyFragments<kD> keys;
      WarpgroupScores products;
      SubChunkOutput of_1, of_2, of_3;
      load_keys(keys, tiles, warp == 0 ? kFirstTwo : warp == 1 ? 2 : kOne);
      wgmma_fence(products, of_3, keys);
      start_scores(products, again.v, again.d_o);
#pragma unroll
      for (int d = 0; d < kD; d += 16) {
        wgmma<kSubChunk>(of_3, keys[d / 16], q.along_mn(3 * kSubChunk).along_k(d), d > 0);
      }
      wgmma_commit();
      wgmma_wait<0>(products, of_3, keys);
#pragma unroll
      for (int s = 1; s < kSubChunks; ++s) to_factor(R[s], products, s * kSubChunk, warp < s);
      load_keys(keys, tiles, warp == 0 ? 1 : kOne);
      wgmma_fence(of_1, of_2, keys);
#pragma unroll
      for (int d = 0; d < kD; d += 16) {
        wgmma<kSubChunk>(of_1, k.along_k(d), q.along_mn(kSubChunk).along_k(d), d > 0);
        wgmma<kSubChunk>(of_2, keys[d / 16], q.along_mn(2 * kSubChunk).along_k(d), d > 0);
      }
      wgmma_commit();
      wgmma_wait<0>(of_1, of_2, keys);
      to_factor(P[1], of_1, 0, warp < 1);
      to_factor(P[2], of_2, 0, warp < 2);
      to_factor(P[3], of_3, 0, warp < 3);
#pragma unroll
      for (int s = 0; s < kSubChunks; ++s) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (s == 0) P[s][i] = 0;
          P[s][i] = warp == s ? own_scores[i] : P[s][i];
        }
      }
    }
    wgmma_fence(dv, P);
#pragma unroll
    for (int s = 0; s < kSubChunks; ++s) start_sub_chunk<kD>(dv, P[s], tiles.d_o, s);
    std::uint32_t own[4];
    load_transposed(own, tiles.factor(warp, warp));
#pragma unroll
    for (int s = kSubChunks - 1; s >= 0; --s) {
      std::uint32_t factor[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) factor[i] = warp == s ? own[i] : s > 0 ? R[s][i] : 0u;
      if (warp < s || (warp == s && anchored)) decay_columns<kD>(from_end, tiles.decays + s * kD);
      wgmma_fence(from_end, factor);
      start_sub_chunk<kD>(from_end, factor, tiles.q, s);
      wgmma_commit();
      wgmma_wait<0>(from_end, dv);
    }
    store_dv(tiles, maps, at, dv, a.scale);
  }

  constexpr int kPanels = kD / kSliceWidth;
  Two decays[kPanels];  // of the sub-chunk, for the lane's columns of each slice
  Gates gates;
  {
    float from_start[kD / 2];
    barriers.start_full.wait(0);
    wgmma_fence(from_start);
    start_reads<kD>(from_start, tiles.d_o, tiles.state);
    wgmma_commit();
    wgmma_wait<0>(from_start);
    if (fresh_lane() == 0) wait_stores_read<0>();
    wait_at_named_barrier(kOutputGradientsAreRead, kWarpgroup);  // do is no longer needed, and dv has left
    store_reads<kD>(tiles.from_end, from_end, a.scale);
    std::uint32_t R[kSubChunks][4];
    tiles.load_factors(R, warp);
    __syncwarp();  // the factors are no longer needed
    if (anchored) gates.load_slice(a, b, h, first);
#pragma unroll
    for (int s = 0; s < kSubChunks; ++s) {
      if (warp > s || (warp == s && anchored)) decay_columns<kD>(from_start, tiles.decays + s * kD);
      wgmma_fence(from_start, R[s]);
      start_sub_chunk<kD>(from_start, R[s], tiles.k, s);
      wgmma_commit();
      wgmma_wait<0>(from_start);
    }
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const float* of_lane = tiles.decays + warp * kD + panel * kSliceWidth + fresh_lane() * 2;
      convert(decays[panel], *reinterpret_cast<const float2*>(of_lane));
    }
    wait_at_named_barrier(kKeysAreRead, kWarpgroup);  // k~, S and the decays are no longer needed
    store_reads<kD>(tiles.from_start, from_start, a.scale);
    __syncwarp();
  }

  const float* products = tiles.products + warp * kSubChunk * kSubChunk;
#pragma unroll 1
  for (int slice = 0; slice < a.Dk; slice += kSliceWidth) {
    const int d = slice + fresh_lane() * 2;
    const LaneColumns<kD> columns(slice);
    Two total = {}, dg[kSubChunk];
    if (anchored) {
      gates.start(a, b, h, first, slice + kSliceWidth);
      const float2 D = of_slice(decays, slice == 0);
      finish_with_anchor(dg, tiles, columns, gates, a, at, float2{}, {log2f(D.x), log2f(D.y)}, {1 / D.x, 1 / D.y});
      sum_up(dg, total);
    } else {
      // Pair by pair, with q, k and g from memory.
      Pairs pairs;
      const auto raw = [&](const View<const __nv_bfloat16>& tensor, int i) {
        const auto* row = tensor.row(b, h, min(first + hide_from_compiler(i), a.L - 1)) + min(d, a.Dk - 2);
        return load_global(reinterpret_cast<const std::uint32_t*>(row));
      };
      const auto load = [&](int i, Two& q, Two& k, Two& gate_row) {
        convert(q, raw(a.q, i));
        convert(k, raw(a.k, i));
        const float* row = a.g.row(b, h, min(first + hide_from_compiler(i), a.L - 1)) + min(d, a.Dk - 2);
        const float2 g = i < rows ? load_global(reinterpret_cast<const float2*>(row)) : float2{};
        gate_row[0] = gate(g.x);
        gate_row[1] = gate(g.y);
      };
      pairs.add(
          load, products, [&](int i) { return *columns.in_row(tiles.from_start, i); },
          [&](int i, const Two& row, const Two& product) {
            store_for_copies(columns.in_row(tiles.q, i), packed_row(row));
            *columns.in_row(tiles.from_start, i) = float_row(product);
          });
#pragma unroll
      for (int i = kSubChunk - 1; i >= 0; --i) {
        Two q, k, full;
        convert(dg[i], *columns.in_row(tiles.from_start, i));
        convert(q, raw(a.q, i));
        convert(k, i == rows - 1 ? 0u : raw(a.k, i));
        convert(full, *columns.in_row(tiles.from_end, i));
        Two x = {pairs.dk[i][0], pairs.dk[i][1]};
        multiply_add(x, pairs.decays[i], full);
#pragma unroll
        for (int e = 0; e < 2; ++e) dg[i][e] = total[e] = (total[e] + dg[i][e]) - k[e] * x[e];
        multiply_add(x, products[i * kSubChunk + i], q);
        store_for_copies(columns.in_row(tiles.k, i), packed_row(x));
      }
    }
    store_slice(tiles, maps, at, columns, slice, dg, total, {a.scale, a.scale});
  }
  if (fresh_lane() == 0) wait_stores_read<0>();
}

}  // namespace tutorial::gla
