#pragma once
/// @file
/// The gradients of a chunk whose pairs are products with an anchor: `anchored_pairs` has the idea. The stage after it
/// has another anchor, and takes this way, with one for each sub-chunk, where a chunk forgets too much.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "03_gla/gla_backward/gradient_parts.cuh"
#include "03_gla/gla_backward/pairs_of_sub_chunk.cuh"
#include "common/device/early_start.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/movmatrix.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/pin_address.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gla {

/// Named barriers beside kKeysAreRead.
enum ReadBarrier : unsigned { kValuesAreRead = kKeysAreRead + 1, kOutputGradientsAreRead };

/// Shared memory of the kernel, for Dk and Dv up to kD.
template <int kD>
struct AnchoredTiles {
  PanelTile<kD, kD> state;             ///< S'^T, then S^T
  PanelTile<kD> q, k, d_o, v;          ///< q~, k~, do, v; dq, dk and dv take the places of q~, k~ and v
  FloatPanels<kChunk, kD> from_start;  ///< A, in the place of the state; dg in that of A
  FloatPanels<kChunk, kD> from_end;    ///< B, in the places of do and v
  float* decays;                       ///< [kDecayRows, kD]
  uint4* factors;                      ///< see factor()
  float2* totals;                      ///< [kD / kSliceWidth, kWarps, 32]: sums for dg of each sub-chunk
  float* products;                     ///< [kSubChunks, 16, 16]: scale R_ti in row t, column i
  float* restart;                      ///< [kWarps, kD]: see multiply_states()

  static constexpr int kTileElements = kChunk * kD;
  static constexpr int kStateElements = std::max(kD, 2 * kChunk) * kD;
  static constexpr unsigned kTileBytes = 2 * kTileElements, kStateBytes = 2 * kD * kD;
  static constexpr int kFactors = 8 * 32;  ///< of kind uint4; three times 32 are in the place of the totals
  static constexpr int kTotals = std::max(kWarps * kD, 3 * 32 * 4);
  /// Of shared memory.
  static constexpr int kBytes = 2 * (kStateElements + 4 * kTileElements) + 16 * kFactors +
                                4 * (kDecayRows * kD + kTotals + kChunk * kSubChunk + kWarps * kD);

  /// @param memory kBytes, aligned to kTileAlignment
  __device__ __forceinline__ explicit AnchoredTiles(__nv_bfloat16* memory)
      : state{memory},
        q{memory + kStateElements},
        k{q.data + kTileElements},
        d_o{k.data + kTileElements},
        v{d_o.data + kTileElements},
        from_start{reinterpret_cast<float*>(memory)},
        from_end{reinterpret_cast<float*>(d_o.data)},
        decays(reinterpret_cast<float*>(v.data + kTileElements)),
        factors(reinterpret_cast<uint4*>(decays + kDecayRows * kD)),
        totals(reinterpret_cast<float2*>(factors + kFactors)),
        products(reinterpret_cast<float*>(totals) + kTotals),
        restart(products + kChunk * kSubChunk) {}

  /// The lane's part of R_rs as a left factor, s <= r.
  __device__ __forceinline__ uint4& factor(int r, int s) const {
    return factors[((s < 2 ? 2 * r : 12 - 2 * r) + s) * 32 + fresh_lane()];
  }
};

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

/// Writes the scores of a sub-chunk's own pairs, times a factor. Called by its warp.
__device__ __forceinline__ void put_own(float* to, const WarpgroupScores& scores, int s, float factor) {
  const int lane = fresh_lane();
  to += lane / 4 * kSubChunk + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float* two = scores + s * 8 + i;
    *reinterpret_cast<float2*>(to + i / 2 % 2 * 8 * kSubChunk + i / 4 * 8) =
        make_float2(factor * two[0], factor * two[1]);
  }
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

/// The chunk of a block, and the sub-chunk of the calling warp in it.
struct ChunkPlace {
  int b, h, n, head, warp;
  int first;   ///< position of the sub-chunk
  int rows;    ///< from there on that exist; it may exceed 16 or be negative
  int chunk;   ///< among those of all heads
  int border;  ///< among the states of all heads: that before the chunk

  /// @param N chunks of a sequence
  /// @param b,h,n batch entry, head and number of the chunk
  __device__ __forceinline__ ChunkPlace(const Bf16BackwardArguments& a, int N, int b, int h, int n)
      : b(b),
        h(h),
        n(n),
        head(b * a.H + h),
        warp(uniform(warp_in_group())),
        first(n * kChunk + warp * kSubChunk),
        rows(a.L - first),
        chunk(head * N + n),
        border(head * (N + 1) + n) {}
};

/// Barriers for the tiles of a chunk.
struct ChunkBarriers {
  Barrier end_full;    ///< S' and v
  Barrier rows_full;   ///< k~, do and q~
  Barrier start_full;  ///< S
};

/// Starts the loads of all tiles but S, and waits for the previous kernel. Called by all threads. The barriers may be
/// used after a barrier of the block.
template <int kD>
__device__ __forceinline__ void start_loads(const AnchoredTiles<kD>& tiles, ChunkBarriers& barriers,
                                            const GradientMaps& maps, const ChunkPlace& at) {
  using Tiles = AnchoredTiles<kD>;
  const TileOrigin origin{.position = at.n * kChunk, .head = at.h, .batch = at.b};
  if (threadIdx.x == 0) {
    barriers.end_full.init(1);
    barriers.start_full.init(1);
    fence_barrier_init();
    barriers.end_full.arrive_expect(Tiles::kTileBytes + Tiles::kStateBytes);
    load_panels(tiles.v, maps.v, barriers.end_full, origin);
    wait_for_previous_kernel();
    load_panels(tiles.state, maps.dS, barriers.end_full, {.head = at.n + 1, .batch = at.head});
  } else if (threadIdx.x == 32) {  // beside the first one, because each copy takes time to start
    barriers.rows_full.init(1);
    fence_barrier_init();
    barriers.rows_full.arrive_expect(3 * Tiles::kTileBytes);
    load_panels(tiles.d_o, maps.d_o, barriers.rows_full, origin);
    wait_for_previous_kernel();
    load_panels(tiles.k, maps.prepared_k, barriers.rows_full, origin);
    load_panels(tiles.q, maps.prepared_q, barriers.rows_full, origin);
  }
  wait_for_previous_kernel();
}

/// The decays that prepare() leaves for a chunk, for the thread's column.
template <int kD>
__device__ __forceinline__ ColumnDecays load_decays(const Bf16BackwardArguments& a, const Between& between,
                                                    const ChunkPlace& at) {
  return load_decays<kD>(between.prepared.decays + std::int64_t(at.chunk) * kSubChunks * a.Dk, a.Dk);
}

/// The thread's part of the state after a chunk.
template <int kD>
__device__ __forceinline__ StateUnits<kD> load_end(const Bf16BackwardArguments& a, const Between& between,
                                                   const ChunkPlace& at) {
  return {between.S + std::int64_t(at.border + 1) * a.Dk * a.Dv, a.Dk, a.Dv};
}

/// Starts to load S in the place of S', when all threads have passed a barrier. Called by all threads.
template <int kD>
__device__ __forceinline__ void load_start(const AnchoredTiles<kD>& tiles, ChunkBarriers& barriers,
                                           const GradientMaps& maps, const ChunkPlace& at) {
  if (threadIdx.x > 0) return;
  fence_async_proxy();  // S' has been read by ordinary loads
  barriers.start_full.arrive_expect(AnchoredTiles<kD>::kStateBytes);
  load_panels(tiles.state, maps.S, barriers.start_full, {.head = at.n, .batch = at.head});
}

/// Stores dv, in the place of v.
template <int kD>
__device__ __forceinline__ void store_dv(const AnchoredTiles<kD>& tiles, const GradientMaps& maps, const ChunkPlace& at,
                                         float (&dv)[kD / 2], float scale) {
#pragma unroll
  for (float& x : dv) x *= scale;
  wait_at_named_barrier(kValuesAreRead, kWarpgroup);  // v is no longer needed
  put_rows(tiles.v, dv);
  fence_async_proxy();
  __syncwarp();
  if (fresh_lane() > 0) return;
#pragma unroll
  for (int column = 0; column < kD; column += 64) {
    store_tile(maps.dv, tiles.v.data + column / 64 * tiles.v.kPanelElements + at.warp * kSubChunk * 64,
               {.column = column, .position = at.first, .head = at.h, .batch = at.b});
  }
  commit_stores();
}

/// A lane's two columns of a sub-chunk's rows of g, and zeros past the end of the sequence. They are loaded into
/// registers long before they are needed.
struct Gates {
  float2 of_row[kSubChunk];
  const float* from;  ///< where the next row to load is
  int rows;           ///< that exist; it may exceed 16 or be negative

  /// The loads that follow are those of a slice. After the last slice they load nothing and give zeros.
  __device__ __forceinline__ void start(const Bf16BackwardArguments& a, int b, int h, int first, int slice) {
    from = a.g.row(b, h, first) + min(slice + fresh_lane() * 2, a.Dk - 2);
    rows = slice < a.Dk ? a.L - first : 0;
  }
  __device__ __forceinline__ void load(int i, std::int64_t stride) {
    of_row[i] = i < rows ? load_global(reinterpret_cast<const float2*>(from)) : float2{};
    from = pinned(from + stride);
  }
  /// Loads the first slice.
  __device__ __forceinline__ void load_slice(const Bf16BackwardArguments& a, int b, int h, int first) {
    start(a, b, h, first, 0);
#pragma unroll
    for (int i = 0; i < kSubChunk; ++i) load(i, a.g.stride_l);
  }
  /// A row, in whose place that of the next slice is loaded. Called for all rows in their order.
  __device__ __forceinline__ float2 take(int i, std::int64_t stride) {
    const float2 row = of_row[i];
    load(i, stride);
    return row;
  }
};

/// Where a lane's two columns of a slice lie, in the rows of its warp's sub-chunk.
template <int kD>
struct LaneColumns {
  int two, float_two;  ///< in row 0 of a tile of bf16 and of fp32

  /// @param slice its first column
  __device__ __forceinline__ LaneColumns(int slice) {
    using Tiles = AnchoredTiles<kD>;
    const int lane = fresh_lane(), warp = warp_in_group();
    two = slice / 64 * decltype(Tiles::q)::kPanelElements + warp * kSubChunk * 64 + lane * 2;
    float_two =
        (slice / 32 + lane / 16) * decltype(Tiles::from_end)::kPanelElements + warp * kSubChunk * 32 + lane % 16 * 2;
  }
  /// The two elements in row i of the sub-chunk, in a tile of bf16.
  __device__ __forceinline__ std::uint32_t* in_row(const PanelTile<kD>& tile, int i) const {
    return reinterpret_cast<std::uint32_t*>(tile.data + (two ^ i % 8 * 8) + i * 64);
  }
  /// The same in a tile of fp32.
  __device__ __forceinline__ float2* in_row(const FloatPanels<kChunk, kD>& tile, int i) const {
    return reinterpret_cast<float2*>(const_cast<float*>(tile.data) + (float_two ^ i % 8 * 4) + i * 32);
  }
};

/// Two columns of a sub-chunk: dq and dk from A' and B', and the terms of dg.
/// @param gates take() is called for all rows
/// @param before base-2 logarithm of the decay from the start of what shares the anchor, the sub-chunk or the chunk, to
/// this sub-chunk
/// @param end the same from that start to the anchor; 0 if the start is the anchor
/// @param growth 2^-end
/// @param own scale times R [16, 16]
/// @param rows from the sub-chunk's first one on that exist
/// @param dg gets q_t . dq'_t - k_t . dk'_t
template <int kD>
__device__ __forceinline__ void finish_with_anchor(Two (&dg)[kSubChunk], const AnchoredTiles<kD>& tiles,
                                                   const LaneColumns<kD>& columns, Gates& gates, std::int64_t stride,
                                                   const Two& before, const Two& end, const Two& growth,
                                                   const float* own, int rows) {
  constexpr int kQuarter = 4;
  struct Quarter {
    std::uint32_t q[kQuarter], k[kQuarter];
    float2 A[kQuarter], B[kQuarter];
    float own[kQuarter];
  } quarters[2];
  const auto load = [&](Quarter& x, int first) {
#pragma unroll
    for (int i = 0; i < kQuarter; ++i) {
      x.q[i] = *columns.in_row(tiles.q, first + i);
      x.k[i] = *columns.in_row(tiles.k, first + i);
      x.A[i] = *columns.in_row(tiles.from_start, first + i);
      x.B[i] = *columns.in_row(tiles.from_end, first + i);
      x.own[i] = own[(first + i) * (kSubChunk + 1)];
    }
  };
  Two sum = {before[0], before[1]};
  load(quarters[0], 0);
#pragma unroll
  for (int first = 0; first < kSubChunk; first += kQuarter) {
    // The compiler moves no load to before a store that may be to the same place. So a quarter is loaded before the one
    // before it is stored.
    if (first + kQuarter < kSubChunk) load(quarters[first / kQuarter % 2 ^ 1], first + kQuarter);
    const Quarter& x = quarters[first / kQuarter % 2];
#pragma unroll
    for (int i = 0; i < kQuarter; ++i) {
      const int t = first + i;
      const float2 g = gates.take(t, stride);
      const Two power = {base2(g.x), base2(g.y)};
      Two q, k, A, B, dq, dk;
      convert(q, x.q[i]);
      convert(k, x.k[i]);
      convert(A, x.A[i]);
      convert(B, x.B[i]);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        sum[e] += power[e];
        // A' is as small as its factor is large, and so is B'. So nothing leaves the range on the way. With the anchor
        // at the start of a chunk it is the other way round for A'.
        dq[e] = ex2(sum[e] - end[e]) * (A[e] + x.own[i] * k[e]);
        dk[e] = ex2(-sum[e]) * (B[e] + x.own[i] * q[e]);
        // The key of the sequence's last position has passed no gate, so it is left out.
        const float key = t == rows - 1 ? 0.0f : k[e];
        dg[t][e] = growth[e] * q[e] * A[e] - growth[e] * key * B[e];
      }
      store_for_copies(columns.in_row(tiles.q, t), packed_row(dq));
      store_for_copies(columns.in_row(tiles.k, t), packed_row(dk));
    }
  }
}

/// Sums up the rows of a sub-chunk from its end.
__device__ __forceinline__ void sum_up(Two (&dg)[kSubChunk], Two& total) {
#pragma unroll
  for (int i = kSubChunk - 1; i >= 0; --i) {
#pragma unroll
    for (int e = 0; e < 2; ++e) dg[i][e] = total[e] += dg[i][e];
  }
}

/// Stores dq, dk and dg of a slice. Called by all warps.
/// @param dg of two columns, summed up from the sub-chunk's end
/// @param total of all its rows
/// @param factor of the sums that multiply_states() leaves
template <int kD>
__device__ __forceinline__ void store_slice(const AnchoredTiles<kD>& tiles, const GradientMaps& maps,
                                            const ChunkPlace& at, const LaneColumns<kD>& columns, int slice,
                                            const Two (&dg)[kSubChunk], const Two& total, const Two& factor) {
  const int panel = slice / kSliceWidth, lane = fresh_lane(), d = slice + lane * 2;
  float2* here = tiles.totals + panel * kWarps * 32 + lane;
  here[at.warp * 32] = float_row(total);
  __syncthreads();
  Two after = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float2 part = *reinterpret_cast<const float2*>(tiles.restart + w * kD + d);
    after[0] += part.x, after[1] += part.y;
  }
  after[0] *= factor[0], after[1] *= factor[1];
#pragma unroll
  for (int w = kWarps - 1; w > 0; --w) {
    const float2 later = here[w * 32];
    if (w > at.warp) after[0] += later.x, after[1] += later.y;
  }
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) {
    store_for_copies(columns.in_row(tiles.from_start, i), make_float2(dg[i][0] + after[0], dg[i][1] + after[1]));
  }
  fence_async_proxy();
  __syncwarp();
  if (lane == 0) {
    TileOrigin to{.column = slice, .position = at.first, .head = at.h, .batch = at.b};
    const int rows_of_warp = panel * tiles.q.kPanelElements + at.warp * kSubChunk * 64;
    store_tile(maps.dq, tiles.q.data + rows_of_warp, to);
    store_tile(maps.dk, tiles.k.data + rows_of_warp, to);
    to.column *= 2;  // the map counts pairs of bf16
    const float* of_g = tiles.from_start.data + slice / 32 * tiles.from_start.kPanelElements + at.warp * kSubChunk * 32;
    store_tile(maps.dg, of_g, to);
    to.column += 64;
    store_tile(maps.dg, of_g + tiles.from_start.kPanelElements, to);
    commit_stores();
  }
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
        tiles.factor(warp, s) = make_uint4(R[0], R[1], R[2], R[3]);
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
#pragma unroll
    for (int s = 0; s < kSubChunks; ++s) {
      const uint4 x = warp >= s ? tiles.factor(warp, s) : uint4{};
      R[s][0] = x.x, R[s][1] = x.y, R[s][2] = x.z, R[s][3] = x.w;
    }
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
    const int panel = slice / kSliceWidth, d = slice + fresh_lane() * 2;
    const LaneColumns<kD> columns(slice);
    Two total = {}, dg[kSubChunk];
    if (anchored) {
      gates.start(a, b, h, first, slice + kSliceWidth);
      const Two D = {panel == 0 ? decays[0][0] : decays[kPanels - 1][0],
                     panel == 0 ? decays[0][1] : decays[kPanels - 1][1]};
      finish_with_anchor(dg, tiles, columns, gates, a.g.stride_l, Two{}, {log2f(D[0]), log2f(D[1])},
                         {1 / D[0], 1 / D[1]}, products, rows);
      sum_up(dg, total);
    } else {
      // As in `warpgroup_gradients`, with q, k and g from memory.
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
