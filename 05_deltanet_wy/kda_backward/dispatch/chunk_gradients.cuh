#pragma once
/// @file
/// The gradients of a chunk with one anchor, by a warpgroup for 64 columns of Dk: `warpgroups` of `--backward`
/// (warpgroups.cu) has the idea and the formulas.
///
/// Tiles take the places of those that are not needed any more:
///
///     products   dO S^T  dV S^T  dO v_new^T  dV v_new^T | Y K-  Z K-  v_new dS^T  Y^T Q+ | Z^T K+ | elements | sums for dg
///     dO         ---------------------------------------| g on its way, b ---------------------------------- |
///     dV         ---------------------------------------| Y, Z -----------------------------------|
///     S          ---------------------------------------|                                         | e -------> dg
///     dS                                                 ------------------------------------------| w ------->
///     Q+                                                 ------------------------------------------| -> dq
///     K+                                                  made of K- and b --- | -----------------| -> dk
///     v_new, K-  --------------------------------------------------------------------------------------------
///
/// In a marked chunk (chunk/alike_keys.cuh) v_new, Y and K- are two bf16. What rounding leaves out of v_new and then of Y
/// comes to the place of S, and that of K- to the place of v_new, when all other products are done.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/kda/chunk_slot.cuh"
#include "05_deltanet_wy/kda_backward/dispatch/warpgroup_walks.cuh"
#include "common/device/bulk_copy.cuh"
#include "common/device/early_start.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/pack.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/float_panels.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

constexpr int kWarps = kWarpgroup / 32;
constexpr int kRowsOfWarp = kChunk / kWarps;
constexpr unsigned kProductsEnded = 1;  // named barrier: those of all warps

/// The tensors of the last kernel, in tiles of 64 columns.
struct ChunkGradientMaps {
  TensorMap Q, K_end, g;
  TensorMap d_o, dv, v_new, S, dS;
  TensorMap v_errors, K_errors;  // of marked chunks
  TensorMap dq, dk, dg;

  /// @param kDv rows of a state
  ChunkGradientMaps(const Bf16BackwardArguments& a, const PreparedChunks& x, const Workspace& of_walks, int kDv)
      : Q(prepared_map(a, x.Q, std::int64_t(x.N) * kChunk, a.Dk, kChunk)),
        K_end(prepared_map(a, x.K_end, std::int64_t(x.N) * kChunk, a.Dk, kChunk)),
        g(float_tile_map(a.g, tensor_sizes(a, a.Dk), kChunk)),
        d_o(tile_map(a.d_o, tensor_sizes(a, a.Dv), kChunk)),
        dv(tile_map(read_only(a.dv), tensor_sizes(a, a.Dv), kChunk)),
        v_new(tile_map(read_only(of_walks.v_new), tensor_sizes(a, a.Dv), kChunk)),
        S(tile_map(read_only(of_walks.S), of_walks.states, kDv)),
        dS(tile_map(read_only(of_walks.dS), of_walks.states, kDv)),
        v_errors(tile_map(read_only(of_walks.v_errors), tensor_sizes(a, a.Dv), kChunk)),
        K_errors(prepared_map(a, x.K_errors, std::int64_t(x.N) * kChunk, a.Dk, kChunk)),
        dq(tile_map(a.dq, tensor_sizes(a, a.Dk), kChunk)),
        dk(tile_map(a.dk, tensor_sizes(a, a.Dk), kChunk)),
        dg(tile_map(View<__nv_bfloat16>{reinterpret_cast<__nv_bfloat16*>(a.dg.data), 2 * a.dg.stride_b,
                                        2 * a.dg.stride_h, 2 * a.dg.stride_l},
                    tensor_sizes(a, 2 * a.Dk), kChunk)) {}
};

/// A block's shared memory, for Dv up to kDv.
template <int kDv>
struct ChunkGradientTiles {
  using Floats = FloatPanels<kChunk, kColumns>;

  PanelTile<kDv> dO, dV, v_new;
  PanelTile<kColumns, kDv> S, dS;  ///< of S^T and dS^T, times D
  PanelTile<kColumns> Q, K, K_end;
  Floats gates, e, w;            ///< in the places of dO, S and dS
  SquarePanel Y, Z;              ///< in the place of dV
  PanelTile<kDv> v_errors;       ///< in the place of S
  SquarePanel Y_errors;          ///< likewise
  PanelTile<kColumns> K_errors;  ///< in the place of v_new

  static constexpr int kPlace = kChunk * 128, kNarrow = kChunk * kColumns;  ///< elements
  static constexpr int kBytes = 2 * (5 * kPlace + 3 * kNarrow);

  /// @param memory kBytes, aligned to kTileAlignment
  __device__ __forceinline__ explicit ChunkGradientTiles(__nv_bfloat16* memory)
      : dO{memory},
        dV{memory + kPlace},
        v_new{memory + 2 * kPlace},
        S{memory + 3 * kPlace},
        dS{memory + 4 * kPlace},
        Q{memory + 5 * kPlace},
        K{Q.data + kNarrow},
        K_end{K.data + kNarrow},
        gates{reinterpret_cast<const float*>(dO.data)},
        e{reinterpret_cast<const float*>(S.data)},
        w{reinterpret_cast<const float*>(dS.data)},
        Y{dV.data},
        Z{dV.data + SquarePanel::kPanelElements},
        v_errors{S.data},
        Y_errors{S.data},
        K_errors{v_new.data} {}
};

/// What a block keeps beside its tiles.
struct ChunkSums {
  Barrier values_full, keys_full, gates_full, errors_full;
  alignas(16) float states[kWarps][kColumns];  ///< parts of the sums of the rows of S . dS
  alignas(16) float gates[kWarps][kColumns];   ///< of a warp's 16 rows: base-2 logarithms of their decays
  alignas(16) float reads[kWarps][kColumns], writes[kWarps][kColumns];
};

/// The chunk of a block, and its columns.
struct ChunkOfBlock {
  int b, h, n, first;  ///< first: column of Dk

  /// In a grid (chunks times tiles of Dk, H, B), the last chunk first: what the walk from the beginning has stored last
  /// may still be in the second-level cache.
  __device__ __forceinline__ ChunkOfBlock(const Bf16BackwardArguments& g, int N, int tiles)
      : b(g.B - 1 - int(blockIdx.z)),
        h(g.H - 1 - int(blockIdx.y)),
        n(N - 1 - int(blockIdx.x) / tiles),
        first(int(blockIdx.x) % tiles * kColumns) {}
};

/// Starts to load all tiles but that of g. Called by two threads, because each copy takes time to start.
template <int kDv>
__device__ __forceinline__ void start_loads(const ChunkGradientTiles<kDv>& tiles, ChunkSums& sums,
                                            const ChunkGradientMaps& maps, const ChunkOfBlock& at, int state_rows) {
  const TileOrigin rows{.position = at.n * kChunk, .head = at.h, .batch = at.b},
      states{.column = at.first, .position = at.n * state_rows, .head = at.h, .batch = at.b};
  constexpr unsigned kValues = kChunk * kDv * 2, kState = kColumns * kDv * 2, kKeys = kChunk * kColumns * 2;
  if (threadIdx.x == 0) {
    sums.values_full.arrive_expect(3 * kValues + kState);
    load_panels(tiles.S, maps.S, sums.values_full, states);
    load_panels(tiles.dO, maps.d_o, sums.values_full, rows);
    load_panels(tiles.dV, maps.dv, sums.values_full, rows);
    load_panels(tiles.v_new, maps.v_new, sums.values_full, rows);
  } else {
    TileOrigin keys = rows;
    keys.column = at.first;
    sums.keys_full.arrive_expect(kState + 2 * kKeys);
    load_panels(tiles.dS, maps.dS, sums.keys_full, states);
    load_panels(tiles.K_end, maps.K_end, sums.keys_full, keys);
    load_panels(tiles.Q, maps.Q, sums.keys_full, keys);
  }
}

/// The sums over the rows of S . dS, times 1 / D, in kWarps parts: a thread has a unit of eight columns. The square of D may
/// be too small for fp32, so S is divided by it first.
/// @param growth 1 / D of the lane's two columns, 2 lane_index() and the one after it
template <int kDv>
__device__ __forceinline__ void multiply_states(const ChunkGradientTiles<kDv>& tiles, ChunkSums& sums, float2 growth) {
  constexpr int kUnits = kColumns / 8, kRows = kWarpgroup / kUnits;  // of a row; rows at a time
  const int thread = int(threadIdx.x), column = thread % kUnits * 8, unit = tiles.S.unit(thread / kUnits, column);
  float parts[8] = {}, growths[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) growths[i] = __shfl_sync(kAllLanes, i % 2 ? growth.y : growth.x, column / 2 + i / 2);
#pragma unroll
  for (int row = 0; row < kDv; row += kRows) {
    const uint4 s = *reinterpret_cast<const uint4*>(tiles.S.data + tiles.S.advance(unit, row, 0));
    const uint4 ds = *reinterpret_cast<const uint4*>(tiles.dS.data + tiles.dS.advance(unit, row, 0));
    const std::uint32_t of_s[] = {s.x, s.y, s.z, s.w}, of_ds[] = {ds.x, ds.y, ds.z, ds.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 x = unpack(of_s[i]), y = unpack(of_ds[i]);
      parts[2 * i] += growths[2 * i] * x.x * y.x;
      parts[2 * i + 1] += growths[2 * i + 1] * x.y * y.y;
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int lanes = kUnits; lanes < 32; lanes *= 2) parts[i] += shuffle_xor(parts[i], lanes);
    if (thread % 32 < kUnits) sums.states[thread / 32][column + i] = parts[i];
  }
}

/// Y or Z: scores times a factor, rounded, and zeros on the diagonal and above.
__device__ __forceinline__ void round_earlier(WarpgroupFragments& pairs, WarpgroupScores& scores, float factor) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) scores[i] = wgmma_column(i) < wgmma_row(i) ? factor * scores[i] : 0.0f;
  round_columns(pairs, scores);
}

/// sums += X Y, X from registers, Y the rows of a chunk.
__device__ __forceinline__ void start_pairs(WarpgroupColumns& sums, const WarpgroupFragments& X,
                                            const PanelTile<kColumns>& Y) {
  const auto y = k_from_row_to_row(Y);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kColumns>(sums, X[i / 16], y.along_k(i), true);
}

/// The same with X from shared memory.
__device__ __forceinline__ void start_product_of_tiles(WarpgroupColumns& sums, const SquarePanel& X,
                                                       const PanelTile<kColumns>& Y) {
  const auto x = k_along_rows(X);
  const auto y = k_from_row_to_row(Y);
#pragma unroll
  for (int i = 0; i < kChunk; i += 16) wgmma<kColumns>(sums, x.along_k(i), y.along_k(i), true);
}

/// sums += X^T Y, or sums = X^T Y.
__device__ __forceinline__ void start_transposed_pairs(WarpgroupColumns& sums, const SquarePanel& X,
                                                       const PanelTile<kColumns>& Y, bool accumulate) {
  const auto x = k_from_row_to_row(X), y = k_from_row_to_row(Y);
#pragma unroll
  for (int t = 0; t < kChunk; t += 16) wgmma<kColumns>(sums, x.along_k(t), y.along_k(t), accumulate || t > 0);
}

/// Where a lane's two columns lie in row i of its warp's 16 rows.
__device__ __forceinline__ float2& two_of(const FloatPanels<kChunk, kColumns>& tile, int i) {
  const int lane = fresh_lane(), row = warp_in_group() * kRowsOfWarp;
  return *reinterpret_cast<float2*>(const_cast<float*>(tile.data) + (tile.place(row, lane * 2) ^ i % 8 * 4) + i * 32);
}

/// Turns gates into b, the base-2 logarithms of the decays from the start of the chunk on, and makes K+ of K- by them: a
/// third of the keys' bytes need not be loaded.
template <int kDv>
__device__ __forceinline__ void add_up_gates(const ChunkGradientTiles<kDv>& tiles, ChunkSums& sums, int warp) {
  float2 b[kRowsOfWarp], sum{0, 0};
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    add_gates(sum, two_of(tiles.gates, i));
    b[i] = sum;
  }
  const int column = fresh_lane() * 2;
  *reinterpret_cast<float2*>(sums.gates[warp] + column) = sum;
  __syncthreads();
  float2 before{0, 0}, end{0, 0};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float2 other = *reinterpret_cast<const float2*>(sums.gates[w] + column);
    if (w < warp) before.x += other.x, before.y += other.y;
    end.x += other.x, end.y += other.y;
  }
  const int unit = tiles.K.unit(warp * kRowsOfWarp, column / 8 * 8) + column % 8;
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const int place = (unit ^ i % 8 * 8) + i * 64;
    const float2 here{before.x + b[i].x, before.y + b[i].y};
    two_of(tiles.gates, i) = here;
    store_for_copies(reinterpret_cast<std::uint32_t*>(tiles.K.data + place),
                     scaled(*reinterpret_cast<const std::uint32_t*>(tiles.K_end.data + place),
                            {ex2(2 * here.x - end.x), ex2(2 * here.y - end.y)}));
  }
}

/// scores += X E^T. @param E what rounding leaves out of v_new
template <int kDv>
__device__ __forceinline__ void start_product_with_errors(WarpgroupScores& scores, const PanelTile<kDv>& X,
                                                          const PanelTile<kDv>& E) {
  const auto x = k_along_rows(X), e = k_along_rows(E);
#pragma unroll
  for (int j = 0; j < kDv; j += 16) wgmma<kChunk>(scores, x.along_k(j), e.along_k(j), true);
}

/// The sums of the products that make the gradients; see warpgroups.cu.
struct ProductSums {
  WarpgroupColumns A, C, writes, pairs;
};

/// Turns the thread's elements of sums into dq and dk, in the places of Q+ and K+, and into the terms of dg. No two
/// numbers that contain decays are multiplied: that would be D^2, which may be too small for fp32.
/// @param own y_t of the thread's two rows @param alike whether K- is two bf16
template <int kDv>
__device__ __forceinline__ void finish_elements(const ChunkGradientTiles<kDv>& tiles, const ProductSums& of,
                                                const float (&own)[2], bool alike) {
  const int row = wgmma_row(0), column = wgmma_column(0);
  const int unit = tiles.Q.unit(row, 0), place = tiles.gates.place(row, column);
  const int end = tiles.gates.place(kChunk - 1, column);
#pragma unroll
  for (int i = 0; i < kChunk / 2; i += 2) {
    const int lower = i / 2 % 2, d = i / 4 * 8;
    const int two = tiles.Q.advance(unit, lower * 8, d) + column,
              in_fp32 = tiles.gates.advance(place, d) + lower * 8 * 32;
    auto* of_q = reinterpret_cast<std::uint32_t*>(tiles.Q.data + two);
    auto* of_k = reinterpret_cast<std::uint32_t*>(tiles.K.data + two);
    const float2 Q = unpack(*of_q);
    float2 K_end = unpack(*reinterpret_cast<const std::uint32_t*>(tiles.K_end.data + two));
    if (alike) {  // the pairs' part of dg cancels only if both sums have the same keys
      const float2 errors = unpack(*reinterpret_cast<const std::uint32_t*>(tiles.K_errors.data + two));
      K_end.x += errors.x, K_end.y += errors.y;
    }
    const float2 b = *reinterpret_cast<const float2*>(tiles.gates.data + in_fp32);
    const float2 b_end = *reinterpret_cast<const float2*>(tiles.gates.data + tiles.gates.advance(end, d));
    float dq[2], dk[2], e[2], w[2];
#pragma unroll
    for (int x = 0; x < 2; ++x) {
      const float here = x ? b.y : b.x, growth = ex2(here - (x ? b_end.y : b_end.x)), from_start = ex2(-here);
      const float q = from_start * (x ? Q.y : Q.x), k = growth * (x ? K_end.y : K_end.x);
      const float asked = growth * of.A[i + x], read = growth * of.C[i + x];
      const float written = from_start * of.writes[i + x], paired = from_start * of.pairs[i + x];
      dq[x] = asked + own[lower] * k;
      dk[x] = read + written + paired + own[lower] * q;
      e[x] = q * asked + k * (read - paired);
      w[x] = k * written;
    }
    store_for_copies(of_q, pack(dq[0], dq[1]));
    store_for_copies(of_k, pack(dk[0], dk[1]));
    *reinterpret_cast<float2*>(const_cast<float*>(tiles.e.data) + in_fp32) = {e[0], e[1]};
    *reinterpret_cast<float2*>(const_cast<float*>(tiles.w.data) + in_fp32) = {w[0], w[1]};
  }
}

/// Turns the terms e and w into dg, in the place of e.
template <int kDv>
__device__ __forceinline__ void add_up_terms(const ChunkGradientTiles<kDv>& tiles, ChunkSums& sums, int warp) {
  const int lane = fresh_lane();
  const auto two = [&](float(&row)[kColumns]) -> float2& { return reinterpret_cast<float2*>(row)[lane]; };
  float2 dg[kRowsOfWarp], read{0, 0}, written{0, 0};
#pragma unroll
  for (int i = kRowsOfWarp - 1; i >= 0; --i) {
    const float2 e = two_of(tiles.e, i);
    read.x += e.x, read.y += e.y;
    dg[i] = read;
  }
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    const float2 w = two_of(tiles.w, i);
    dg[i].x += written.x, dg[i].y += written.y;
    written.x += w.x, written.y += w.y;
  }
  two(sums.reads[warp]) = read;
  two(sums.writes[warp]) = written;
  __syncthreads();
  float2 rest{0, 0};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float2 state = two(sums.states[w]), other = w > warp ? two(sums.reads[w]) : two(sums.writes[w]);
    rest.x += state.x, rest.y += state.y;
    if (w != warp) rest.x += other.x, rest.y += other.y;
  }
#pragma unroll
  for (int i = 0; i < kRowsOfWarp; ++i) {
    store_for_copies(&two_of(tiles.e, i), float2{dg[i].x + rest.x, dg[i].y + rest.y});
  }
}

/// dq, dk, dg and dbeta of a chunk that has one anchor, after start_loads(). Called by the block's warpgroup.
/// @param minus_D -D of the lane's two columns @param alike whether the chunk is marked
template <int kDv>
__device__ __forceinline__ void gradients_with_anchor(const Bf16BackwardArguments& g,
                                                      const ChunkGradientTiles<kDv>& tiles, ChunkSums& sums,
                                                      const ChunkGradientMaps& maps, const ChunkOfBlock& at,
                                                      float2 minus_D, bool alike) {
  const int warp = __shfl_sync(kAllLanes, int(threadIdx.x) / 32, 0), t = at.n * kChunk;
  const TileOrigin part{.column = at.first, .position = t, .head = at.h, .batch = at.b};
  ProductSums of;
  WarpgroupFragments y, z, y_errors;
  float own[2];  // y_t
  {
    WarpgroupScores of_queries, of_keys;
    float betas[2];
    if (at.first == 0) load_betas(betas, g, at.b, at.h, t);
    sums.values_full.wait(0);
    wgmma_fence(of.A, of.C, of_queries, of_keys);
    start_scores(of_queries, tiles.dO, tiles.v_new);
    start_scores(of_keys, tiles.dV, tiles.v_new);
    start_product_with_state<kColumns, kDv>(of.A, k_along_rows(tiles.dO), tiles.S, false);
    start_product_with_state<kColumns, kDv>(of.C, k_along_rows(tiles.dV), tiles.S, false);
    wgmma_commit();
    sums.keys_full.wait(0);
    multiply_states(tiles, sums, {-1 / minus_D.x, -1 / minus_D.y});
    wgmma_wait<0>(of.A, of.C, of_queries, of_keys);
    if (alike) {
      fence_async_proxy();  // of S, which has been read by ordinary loads
      wait_at_named_barrier(kProductsEnded, kWarpgroup);
      if (threadIdx.x == 0) {
        sums.errors_full.arrive_expect(kChunk * kDv * 2);
        load_panels(tiles.v_errors, maps.v_errors, sums.errors_full, {.position = t, .head = at.h, .batch = at.b});
      }
      sums.errors_full.wait(0);
      wgmma_fence(of_queries, of_keys);
      start_product_with_errors(of_queries, tiles.dO, tiles.v_errors);
      start_product_with_errors(of_keys, tiles.dV, tiles.v_errors);
      wgmma_commit();
      wgmma_wait<0>(of_queries, of_keys);
    }
    if (at.first == 0) store_beta_gradient(g, at.b, at.h, t, of_keys, betas);
    diagonal_of(own, of_queries);
    round_earlier(y, of_queries, g.scale);
    round_earlier(z, of_keys, -1);
    if (alike) {
      keep_errors(of_queries);
      round_columns(y_errors, of_queries);
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) own[row] = g.scale * warp_sum<4>(own[row]);
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) of.A[i] *= g.scale, of.C[i] = -of.C[i];
  wait_at_named_barrier(kProductsEnded, kWarpgroup);
  put_fragments(tiles.Y, y);
  put_fragments(tiles.Z, z);
  if (alike) put_fragments(tiles.Y_errors, y_errors);
  fence_async_proxy();  // also of S, which has been read by ordinary loads
  __syncthreads();      // Y and Z are there; dO, dV and S are not needed any more
  if (threadIdx.x == 0) {
    sums.gates_full.arrive_expect(tiles.gates.kLoadedBytes);
    load_panels(tiles.gates, maps.g, sums.gates_full, part);
  }

  wgmma_fence(of.A, of.C, of.writes, of.pairs, y, z);
  start_pairs(of.A, y, tiles.K_end);
  start_pairs(of.C, z, tiles.K_end);
  start_product_with_state<kColumns, kDv>(of.writes, k_along_rows(tiles.v_new), tiles.dS, false);
  start_transposed_pairs(of.pairs, tiles.Y, tiles.Q, false);
  if (alike) {
    wgmma_fence();  // else the compiler would put one here
    start_product_of_tiles(of.A, tiles.Y_errors, tiles.K_end);
    start_transposed_pairs(of.pairs, tiles.Y_errors, tiles.Q, true);
  }
  sums.gates_full.wait(0);
  add_up_gates(tiles, sums, warp);
  fence_async_proxy();
  __syncthreads();  // b and K+ are there
  wgmma_fence();    // else the compiler would put one here
  start_transposed_pairs(of.pairs, tiles.Z, tiles.K, true);
  wgmma_commit();
  wgmma_wait<0>(of.A, of.C, of.writes, of.pairs, y, z);
  __syncthreads();  // no product needs Q+, K+, dS and v_new any more
  if (alike) {
    if (threadIdx.x == 0) {
      sums.errors_full.arrive_expect(kChunk * kColumns * 2);
      load_panels(tiles.K_errors, maps.K_errors, sums.errors_full, part);
    }
    sums.errors_full.wait(1);
    wgmma_fence(of.A, y);
    start_pairs(of.A, y, tiles.K_errors);
    wgmma_commit();
    wgmma_wait<0>(of.A, y);
  }

  finish_elements(tiles, of, own, alike);
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    store_tile(maps.dq, tiles.Q.data, part);
    store_tile(maps.dk, tiles.K.data, part);
  }
  add_up_terms(tiles, sums, warp);
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x > 0) return;
  TileOrigin of_dg = part;
  of_dg.column *= 2;  // the map counts pairs of bf16
  for (int panel = 0; panel < kColumns / 32; ++panel) {
    store_tile(maps.dg, tiles.e.data + panel * tiles.e.kPanelElements, of_dg);
    of_dg.column += 64;
  }
  commit_stores();
  wait_stores_read<0>();
}

}  // namespace
}  // namespace tutorial::kda
