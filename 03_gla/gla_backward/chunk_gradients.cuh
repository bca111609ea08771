#pragma once
/// @file
/// What a block does for all gradients of a chunk, whatever its anchor is: where its tiles lie, how they are loaded, and
/// how A and B become dq, dk and dg. `anchored_pairs` has the idea.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "03_gla/gla_backward/gradient_maps.cuh"
#include "03_gla/gla_backward/pairs_of_sub_chunk.cuh"
#include "common/device/early_start.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/pack.cuh"
#include "common/device/pin_address.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/warpgroup_chunk.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::gla {

inline constexpr int kSliceWidth = 64;  ///< columns of a slice of elements: two per lane
inline constexpr int kWarps = kWarpgroup / 32;

/// Named barriers: what no product needs any more.
enum ReadBarrier : unsigned { kKeysAreRead = 1, kValuesAreRead, kOutputGradientsAreRead };

/// Rows of the table of decays. The first kSubChunks are those of the sub-chunks; kOne is 1 in all columns.
enum DecayRow { kFirstTwo = 4, kLastTwo, kLastThree, kOne, kDecayRows };  // D_1 D_2, D_2 D_3, D_1 D_2 D_3

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
  /// Keeps it for later.
  __device__ __forceinline__ void put_factor(const std::uint32_t (&R)[4], int r, int s) const {
    factor(r, s) = make_uint4(R[0], R[1], R[2], R[3]);
  }
  /// Keeps all of sub-chunk r.
  __device__ __forceinline__ void put_factors(const ScoreFragments& R, int r) const {
#pragma unroll
    for (int s = 0; s < kSubChunks; ++s) {
      if (s <= r) put_factor(R[s], r, s);
    }
  }
  /// All factors of sub-chunk r, and zeros for s > r.
  __device__ __forceinline__ void load_factors(ScoreFragments& R, int r) const {
#pragma unroll
    for (int s = 0; s < kSubChunks; ++s) {
      const uint4 x = s <= r ? factor(r, s) : uint4{};
      R[s][0] = x.x, R[s][1] = x.y, R[s][2] = x.z, R[s][3] = x.w;
    }
  }
};

/// The chunk of a block, and the sub-chunk of the calling warp in it.
struct ChunkPlace {
  int b, h, n, head, warp;
  int first;   ///< position of the sub-chunk
  int rows;    ///< from there on that exist; it may exceed 16 or be negative
  int chunk;   ///< among those of all heads
  int border;  ///< among the states of all heads: that before the chunk

  /// Of a block in a grid (N, H, B), the last chunk first: what the walk from the start has stored last may still be in
  /// the second-level cache.
  /// @param N chunks of a sequence
  __device__ __forceinline__ ChunkPlace(const Bf16BackwardArguments& a, int N)
      : b(a.B - 1 - int(blockIdx.z)),
        h(a.H - 1 - int(blockIdx.y)),
        n(N - 1 - int(blockIdx.x)),
        head(b * a.H + h),
        warp(uniform(warp_in_group())),
        first(n * kChunk + warp * kSubChunk),
        rows(a.L - first),
        chunk(head * N + n),
        border(head * (N + 1) + n) {}

  /// The decays of the chunk's sub-chunks, [kSubChunks, Dk]; see `one_anchor` for other rows that may lie there.
  __device__ __forceinline__ const float* decays(const Between& between, int Dk) const {
    return between.prepared.decays + std::int64_t(chunk) * kSubChunks * Dk;
  }
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

/// The block's part of a state in memory that multiply_states() multiplies: units of eight columns of S^T.
template <int kD>
struct StateUnits {
  static constexpr int kInRow = kD / 8, kRows = kWarpgroup / kInRow;  ///< units of a row, rows at a time
  uint4 units[kD / kRows];

  /// Loads them. Where an element does not exist it is another one, which meets zeros.
  __device__ __forceinline__ StateUnits(const __nv_bfloat16* state, int Dk, int Dv) {
    const int thread = int(threadIdx.x), d = min(thread % kInRow * 8, Dk - 8);
#pragma unroll
    for (int i = 0; i < kD / kRows; ++i) {
      const int j = min(thread / kInRow + i * kRows, Dv - 1);
      units[i] = load_for_update(reinterpret_cast<const uint4*>(state + j * Dk + d));
    }
  }
};

/// The sums of the rows of S . S', in kWarps parts, with what lies in shared memory for S'. It is W / scale, but in
/// `one_anchor`.
template <int kD>
__device__ __forceinline__ void multiply_states(const StateUnits<kD>& S, const AnchoredTiles<kD>& tiles) {
  constexpr int kInRow = StateUnits<kD>::kInRow, kRows = StateUnits<kD>::kRows;
  const int thread = int(threadIdx.x), lane = thread % 32, unit = thread % kInRow * 8;
  float parts[8] = {};
#pragma unroll
  for (int i = 0; i < kD / kRows; ++i) {
    const uint4 x = S.units[i];
    const uint4 y =
        *reinterpret_cast<const uint4*>(tiles.state.data + tiles.state.unit(thread / kInRow + i * kRows, unit));
    const std::uint32_t of_x[] = {x.x, x.y, x.z, x.w}, of_y[] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float2 s = unpack(of_x[e]), ds = unpack(of_y[e]);
      parts[2 * e] += s.x * ds.x;
      parts[2 * e + 1] += s.y * ds.y;
    }
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) {
#pragma unroll
    for (int flipped = kInRow; flipped < 32; flipped *= 2) parts[e] += shuffle_xor(parts[e], flipped);
    if (lane < kInRow) tiles.restart[thread / 32 * kD + unit + e] = parts[e];
  }
}

/// sums = X S^T, X the rows of the chunk.
template <int kD>
__device__ __forceinline__ void start_reads(float (&sums)[kD / 2], const PanelTile<kD>& X,
                                            const PanelTile<kD, kD>& state) {
  const auto x = k_along_rows(X);
  const auto s = k_from_row_to_row(state);
#pragma unroll
  for (int j = 0; j < kD; j += 16) wgmma<kD>(sums, x.along_k(j), s.along_k(j), j > 0);
}

/// sums += X Y, Y the 16 rows of sub-chunk s of a tile.
template <int kD>
__device__ __forceinline__ void start_sub_chunk(float (&sums)[kD / 2], const std::uint32_t (&X)[4],
                                                const PanelTile<kD>& Y, int s) {
  wgmma<kD>(sums, X, k_from_row_to_row(Y).along_k(s * kSubChunk), true);
}

/// Writes A or B, times a factor. Called by all warps, each for its sub-chunk.
template <int kD>
__device__ __forceinline__ void store_reads(const FloatPanels<kChunk, kD>& tile, const float (&sums)[kD / 2],
                                            float factor) {
  const int lane = fresh_lane(), row = warp_in_group() * 16 + lane / 4;
  float* const data = const_cast<float*>(tile.data);
  const int place = tile.place(row, lane % 4 * 2);
#pragma unroll
  for (int i = 0; i < kD / 2; i += 4) {
    float* two = data + tile.advance(place, i * 2);
    *reinterpret_cast<float2*>(two) = make_float2(factor * sums[i], factor * sums[i + 1]);
    *reinterpret_cast<float2*>(two + 8 * 32) = make_float2(factor * sums[i + 2], factor * sums[i + 3]);
  }
}

/// Asks for a sub-chunk's rows of a tensor, for the loads that come later.
/// @param rows of them that exist
template <int kD, class T>
__device__ __forceinline__ void prefetch_rows(const View<const T>& tensor, int b, int h, int first, int rows,
                                              int columns) {
  constexpr int kLine = 128 / sizeof(T), kLines = kD / kLine;  // elements of a line of the cache, lines of a row
  const int lane = fresh_lane(), d = lane % kLines * kLine;
#pragma unroll 1
  for (int i = lane / kLines; i < min(rows, kSubChunk); i += 32 / kLines) {
    if (d < columns) prefetch_global(tensor.row(b, h, first + i) + d);
  }
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

/// Sums up the rows of a sub-chunk from its end.
__device__ __forceinline__ void sum_up(Two (&dg)[kSubChunk], Two& total) {
#pragma unroll
  for (int i = kSubChunk - 1; i >= 0; --i) {
#pragma unroll
    for (int e = 0; e < 2; ++e) dg[i][e] = total[e] += dg[i][e];
  }
}

/// Two columns of a sub-chunk: dq and dk from A' and B', and the terms of dg.
/// @param gates take() is called for all rows
/// @param before base-2 logarithm of the decay from the start of what shares the anchor, the sub-chunk or the chunk, to
/// this sub-chunk
/// @param end the same from that start to the anchor; 0 if the start is the anchor
/// @param growth 2^-end
/// @param dg gets q_t . dq'_t - k_t . dk'_t
template <int kD>
__device__ __forceinline__ void finish_with_anchor(Two (&dg)[kSubChunk], const AnchoredTiles<kD>& tiles,
                                                   const LaneColumns<kD>& columns, Gates& gates,
                                                   const Bf16BackwardArguments& a, const ChunkPlace& at, float2 before,
                                                   const Two& end, const Two& growth) {
  const float* own = tiles.products + at.warp * kSubChunk * kSubChunk;  // scale times R
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
  Two sum = {before.x, before.y};
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
      const float2 g = gates.take(t, a.g.stride_l);
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
        const float key = t == at.rows - 1 ? 0.0f : k[e];
        dg[t][e] = growth[e] * q[e] * A[e] - growth[e] * key * B[e];
      }
      store_for_copies(columns.in_row(tiles.q, t), packed_row(dq));
      store_for_copies(columns.in_row(tiles.k, t), packed_row(dk));
    }
  }
}

/// What a lane has for one of its slices, of which there are one or two.
template <int kPanels>
__device__ __forceinline__ float2 of_slice(const Two (&x)[kPanels], bool is_first) {
  return {is_first ? x[0][0] : x[kPanels - 1][0], is_first ? x[0][1] : x[kPanels - 1][1]};
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

}  // namespace tutorial::gla
