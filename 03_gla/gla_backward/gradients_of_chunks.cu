/// @file
/// gradients_kernel of `materialized` and of the stages after it: one block per chunk. `materialized` has the idea and
/// the equations.

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "03_gla/gla/prepared_tiles.cuh"
#include "03_gla/gla_backward/gradients_of_chunks.hpp"
#include "03_gla/gla_backward/pairs_of_sub_chunk.cuh"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/mma.cuh"
#include "common/device/pin_address.cuh"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/swizzled_tile.cuh"
#include "common/tile/walk_sub_chunk.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kSliceWidth = 64;  // columns of a slice of pairs

/// Shared memory of gradients_kernel, for Dk and Dv up to kD.
template <int kD>
struct Tiles {
  using Tile = SwizzledTile<kD>;
  Tile q, k, d_o, v;      ///< [C, kD]: q~, k~, do, v
  __nv_bfloat16* state;   ///< [kD / 8, kD / 8, 8, 8]: tiles of S^T
  float* decays;          ///< [kSubChunks, kD]
  __nv_bfloat16* scores;  ///< [kSubChunks, 16, 16]: P_ti in row i, column t
  float* products;        ///< [kSubChunks, 16, 16]: R_ti in row t, column i
  float* after;           ///< [kSubChunks, kD]: decays of the sub-chunks after a warp's own, as far as it has come
  float* restart;         ///< [kD]: W

  static constexpr int kTileElements = kChunk * kD;
  static constexpr int kStride = kD + 8;  ///< of a row of A or B: eight rows of four float2 lie in different banks
  static constexpr int kBytes =
      2 * (4 * kTileElements + kD * kD) + 4 * (2 * kSubChunks + 1) * kD + (2 + 4) * kChunk * kSubChunk;
  static_assert(2 * 4 * kChunk * kStride <= 2 * (4 * kTileElements + kD * kD), "A and B lie in the place of the tiles");

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : q{reinterpret_cast<__nv_bfloat16*>(memory)},
        k{q.data + kTileElements},
        d_o{k.data + kTileElements},
        v{d_o.data + kTileElements},
        state(v.data + kTileElements),
        decays(reinterpret_cast<float*>(state + kD * kD)),
        scores(reinterpret_cast<__nv_bfloat16*>(decays + kSubChunks * kD)),
        products(reinterpret_cast<float*>(scores + kChunk * kSubChunk)),
        after(products + kChunk * kSubChunk),
        restart(after + kSubChunks * kD) {}

  /// Row t of a chunk of A, or of B.
  __device__ __forceinline__ float* read(int t, bool of_b) const {
    return reinterpret_cast<float*>(q.data) + ((of_b ? kChunk : 0) + t) * kStride;
  }
};

/// Starts the copy of a state.
template <int kD>
__device__ __forceinline__ void load_state_async(const Tiles<kD>& tiles, const __nv_bfloat16* state, int Dk, int Dv) {
  if (Dk == kD && Dv == kD) {  // one piece
#pragma unroll
    for (int i = 0; i < kD * kD; i += 8 * kThreads) {
      cp_async<16>(tiles.state + threadIdx.x * 8 + i, state + threadIdx.x * 8 + i);
    }
    return;
  }
#pragma unroll 1
  for (int i = hide_from_compiler(int(threadIdx.x)); i < kD * kD / 8; i += kThreads) {
    const int j = i / kD, d = i % kD / 8;  // the tile
    cp_async<16>(tiles.state + i * 8, state + ((j * (Dk / 8) + d) * 8 + i % 8) * 8, j * 8 < Dv && d * 8 < Dk);
  }
}

/// The block's rows of a state in memory that multiply_states() multiplies.
template <int kD>
struct StateRows {
  static_assert(kD <= kThreads);
  uint4 rows[kD / 8] = {};  ///< the thread has a row of each tile of eight columns of S^T

  /// Loads them. Where a tile does not exist it is another one, which meets zeros.
  __device__ __forceinline__ StateRows(const __nv_bfloat16* state, int Dk, int Dv) {
    const int thread = int(threadIdx.x), mine = min(thread / 8, Dk / 8 - 1) * 64 + thread % 8 * 8;
    if (thread >= kD) return;
#pragma unroll
    for (int j = 0; j < kD / 8; ++j) {
      rows[j] = load_for_update(reinterpret_cast<const uint4*>(state + min(j, Dv / 8 - 1) * 8 * Dk + mine));
    }
  }
};

/// W: the sums of the rows of S . S', S' in shared memory.
template <int kD>
__device__ __forceinline__ void multiply_states(const StateRows<kD>& S, const Tiles<kD>& tiles, float factor) {
  const int thread = int(threadIdx.x);
  if (thread >= kD) return;
  float parts[8] = {};
#pragma unroll
  for (int j = 0; j < kD / 8; ++j) {
    const uint4 x = S.rows[j], y = *reinterpret_cast<const uint4*>(tiles.state + (j * kD + thread) * 8);
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
    const float sum = factor * warp_sum<8>(parts[e]);
    if (thread % 8 == e) tiles.restart[thread] = sum;
  }
}

/// C = X Y^T, the products of two sub-chunks' rows, which begin at rows x and y.
template <int kD>
__device__ __forceinline__ void multiply_rows(float (&C)[2][4], const SwizzledTile<kD>& X, int x,
                                              const SwizzledTile<kD>& Y, int y) {
  const int lane = fresh_lane(), unit = X.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int j = 0; j < kD; j += 16) {
    std::uint32_t rows[4], columns[4];
    ldmatrix_x4(rows, X.data + X.advance(unit, 0, j) + x * kD);
    ldmatrix_x4(columns, Y.data + Y.advance(unit, 0, j) + y * kD);
    mma_m16n8k16(C[0], rows, {columns[0], columns[2]});
    mma_m16n8k16(C[1], rows, {columns[1], columns[3]});
  }
}

/// Such products in bf16, as the factor of another product.
__device__ __forceinline__ void to_factor(std::uint32_t (&factor)[4], const float (&C)[2][4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) factor[i] = pack(C[i / 2][i % 2 * 2], C[i / 2][i % 2 * 2 + 1]);
}

/// sums += X Y, X a factor [16, 16] and Y the 16 rows of a tile from row y on.
template <int kD>
__device__ __forceinline__ void add_product(float (&sums)[kD / 8][4], const std::uint32_t (&X)[4],
                                            const SwizzledTile<kD>& Y, int y) {
  const int lane = fresh_lane(), unit = Y.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int j = 0; j < kD; j += 16) {
    std::uint32_t rows[4];
    ldmatrix_x4_trans(rows, Y.data + Y.advance(unit, 0, j) + y * kD);
    mma_m16n8k16(sums[j / 8], X, {rows[0], rows[1]});
    mma_m16n8k16(sums[j / 8 + 1], X, {rows[2], rows[3]});
  }
}

/// sums += X S^T, X the 16 rows of a tile from row x on.
template <int kD>
__device__ __forceinline__ void add_from_state(float (&sums)[kD / 8][4], const SwizzledTile<kD>& X, int x,
                                               const __nv_bfloat16* state) {
  const int lane = fresh_lane(), unit = X.unit(lane % 16, lane / 16 * 8);
  const __nv_bfloat16* mine = state + (lane / 8 % 2 * (kD / 8) + lane / 16) * 64 + lane % 8 * 8;
#pragma unroll
  for (int j = 0; j < kD / 8; j += 2) {
    std::uint32_t rows[4];
    ldmatrix_x4(rows, X.data + X.advance(unit, 0, j * 8) + x * kD);
#pragma unroll
    for (int d = 0; d < kD / 8; d += 2) {
      std::uint32_t s[4];
      ldmatrix_x4_trans(s, mine + (j * (kD / 8) + d) * 64);
      mma_m16n8k16(sums[d], rows, {s[0], s[1]});
      mma_m16n8k16(sums[d + 1], rows, {s[2], s[3]});
    }
  }
}

/// The columns from d on of a warp's 16 keys, times `after`, as a factor.
template <int kD>
__device__ __forceinline__ void load_keys(std::uint32_t (&keys)[4], const Tiles<kD>& tiles, int first_row, int d) {
  const int lane = fresh_lane();
  ldmatrix_x4(keys, tiles.k.data + tiles.k.advance(tiles.k.unit(lane % 16, lane / 16 * 8), 0, d) + first_row * kD);
  const float* decays = tiles.after + first_row / kSubChunk * kD + d + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) keys[i] = scaled(keys[i], *reinterpret_cast<const float2*>(decays + i / 2 * 8));
}

/// Multiplies each column by a decay.
template <int kD>
__device__ __forceinline__ void decay_columns(float (&sums)[kD / 8][4], const float* decays) {
  const int lane = fresh_lane();
#pragma unroll
  for (int d = 0; d < kD / 8; ++d) {
    const float2 two = *reinterpret_cast<const float2*>(decays + d * 8 + lane % 4 * 2);
    sums[d][0] *= two.x;
    sums[d][1] *= two.y;
    sums[d][2] *= two.x;
    sums[d][3] *= two.y;
  }
}

/// Adds to dv / scale of sub-chunk r what the state at the chunk's end gives.
template <int kD>
__device__ __forceinline__ void add_values_from_state(float (&sums)[kD / 8][4], const Tiles<kD>& tiles, int r) {
  const int lane = fresh_lane(), first_row = r * kSubChunk;
  for (int d = lane; d < kD; d += 32) {
    float decay = 1;
    for (int s = r + 1; s < kSubChunks; ++s) decay *= tiles.decays[s * kD + d];
    tiles.after[r * kD + d] = decay;
  }
  __syncwarp();
  const __nv_bfloat16* mine = tiles.state + (lane / 16 * (kD / 8) + lane / 8 % 2) * 64 + lane % 8 * 8;
#pragma unroll
  for (int d = 0; d < kD / 8; d += 2) {
    std::uint32_t keys[4];
    load_keys(keys, tiles, first_row, d * 8);
#pragma unroll
    for (int j = 0; j < kD / 8; j += 2) {
      std::uint32_t s[4];
      ldmatrix_x4(s, mine + (j * (kD / 8) + d) * 64);
      mma_m16n8k16(sums[j], keys, {s[0], s[1]});
      mma_m16n8k16(sums[j + 1], keys, {s[2], s[3]});
    }
  }
  __syncwarp();
}

/// Adds to dv / scale of sub-chunk r what the rows of the chunk give.
template <int kD>
__device__ __forceinline__ void add_values(float (&sums)[kD / 8][4], const Tiles<kD>& tiles, int r) {
  const int lane = fresh_lane(), first_row = r * kSubChunk;
  float* after = tiles.after + r * kD;
  std::uint32_t factor[4];
  ldmatrix_x4(factor, tiles.scores + (first_row + lane % 16) * kSubChunk + lane / 16 * 8);
  add_product(sums, factor, tiles.d_o, first_row);
  for (int d = lane; d < kD; d += 32) after[d] = 1;
  __syncwarp();
#pragma unroll 1
  for (int s = r + 1; s < kSubChunks; ++s) {
    float scores[2][4] = {};
    const int unit = tiles.q.unit(lane % 16, lane / 16 * 8);
#pragma unroll
    for (int d = 0; d < kD; d += 16) {
      std::uint32_t keys[4], queries[4];
      load_keys(keys, tiles, first_row, d);
      ldmatrix_x4(queries, tiles.q.data + tiles.q.advance(unit, 0, d) + s * kSubChunk * kD);
      mma_m16n8k16(scores[0], keys, {queries[0], queries[2]});
      mma_m16n8k16(scores[1], keys, {queries[1], queries[3]});
    }
    to_factor(factor, scores);
    add_product(sums, factor, tiles.d_o, s * kSubChunk);
    __syncwarp();
    for (int d = lane; d < kD; d += 32) after[d] *= tiles.decays[s * kD + d];
    __syncwarp();
  }
}

/// B of sub-chunk r, from what the state has given.
template <int kD>
__device__ __forceinline__ void read_from_end(float (&sums)[kD / 8][4], const Tiles<kD>& tiles, int r) {
#pragma unroll 1
  for (int s = kSubChunks - 1; s > r; --s) {
    decay_columns<kD>(sums, tiles.decays + s * kD);
    float products[2][4] = {};
    std::uint32_t factor[4];
    multiply_rows(products, tiles.v, r * kSubChunk, tiles.d_o, s * kSubChunk);
    to_factor(factor, products);
    add_product(sums, factor, tiles.q, s * kSubChunk);
  }
}

/// A of sub-chunk r, and scale R_rr.
template <int kD>
__device__ __forceinline__ void read_from_start(float (&sums)[kD / 8][4], const Tiles<kD>& tiles, int r, float scale) {
  add_from_state(sums, tiles.d_o, r * kSubChunk, tiles.state);
#pragma unroll 1
  for (int s = 0; s <= r; ++s) {
    float products[2][4] = {};
    multiply_rows(products, tiles.d_o, r * kSubChunk, tiles.v, s * kSubChunk);
    if (s == r) {
      const int lane = fresh_lane();
      float* R = tiles.products + (r * kSubChunk + lane / 4) * kSubChunk + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < 8; ++i) R[i / 2 % 2 * 8 * kSubChunk + i / 4 * 8 + i % 2] = scale * products[i / 4][i % 4];
    } else {
      std::uint32_t factor[4];
      decay_columns<kD>(sums, tiles.decays + s * kD);
      to_factor(factor, products);
      add_product(sums, factor, tiles.k, s * kSubChunk);
    }
  }
}

/// Writes A or B of a warp's sub-chunk, times a factor, to shared memory.
template <int kD>
__device__ __forceinline__ void store_read(const Tiles<kD>& tiles, int r, bool of_b, const float (&sums)[kD / 8][4],
                                           float factor) {
  const int lane = fresh_lane();
  float* row = tiles.read(r * kSubChunk + lane / 4, of_b) + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < kD / 4; ++i) {
    *reinterpret_cast<float2*>(row + i % 2 * 8 * tiles.kStride + i / 2 * 8) =
        make_float2(factor * sums[i / 2][i % 2 * 2], factor * sums[i / 2][i % 2 * 2 + 1]);
  }
}

/// A lane's columns d and d + 1 of a sub-chunk's rows of q, k and g. Past the end of the sequence the rows are others,
/// whose R, A and B are zeros.
/// @param rows of them that exist; it may exceed 16 or be negative
__device__ __forceinline__ void load_rows(Row<2> (&all)[kSubChunk], const Bf16BackwardArguments& a, int b, int h,
                                          int first, int rows, int d) {
  if (rows >= kSubChunk) {
    d = min(d, a.Dk - 2);
    const auto* q = pinned(a.q.row(b, h, first) + d);  // else strides would be multiplied anew for each row
    const auto* k = pinned(a.k.row(b, h, first) + d);
    const auto* g = pinned(a.g.row(b, h, first) + d);
#pragma unroll
    for (int i = 0; i < kSubChunk; ++i) {
      all[i].q = load_global(reinterpret_cast<const std::uint32_t*>(q + i * a.q.stride_l));
      all[i].k = load_global(reinterpret_cast<const std::uint32_t*>(k + i * a.k.stride_l));
      all[i].g = load_global(reinterpret_cast<const float2*>(g + i * a.g.stride_l));
    }
  } else {
#pragma unroll 1
    for (int i = 0; i < kSubChunk; ++i) {
      const Row<2> row = load_row<2>(a, b, h, first + i, d);
#pragma unroll
      for (int j = 0; j < kSubChunk; ++j) {
        if (j == i) all[j] = row;  // the array stays in registers
      }
    }
  }
}

/// All gradients of a chunk. Grid (N, H, B).
template <int kD>
__global__ void __launch_bounds__(kThreads, 2) gradients_kernel(Bf16BackwardArguments a, Between between) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), N = between.prepared.N, t = n * kChunk;
  const int lane = int(lane_index()), warp = int(threadIdx.x) / 32;
  const std::int64_t head = std::int64_t(b) * a.H + h, chunk = head * N + n, size = std::int64_t(a.Dk) * a.Dv;
  const std::int64_t border = head * (N + 1) + n;
  const Tiles<kD> tiles(dynamic_shared<unsigned char>());
  load_tile_async(tiles.v, a.v.row(b, h, t), a.v.stride_l, a.L - t, a.Dv);
  wait_for_previous_kernel();
  load_state_async(tiles, between.dS + (border + 1) * size, a.Dk, a.Dv);
  cp_async_commit();
  load_tile_async(tiles.k, between.prepared.k + chunk * kChunk * a.Dk, a.Dk, kChunk, a.Dk);
  load_decays_async<kD>(tiles.decays, between.prepared, chunk, 0, a.Dk);
  load_tile_async(tiles.d_o, a.d_o.row(b, h, t), a.d_o.stride_l, a.L - t, a.Dv);
  load_tile_async(tiles.q, between.prepared.q + chunk * kChunk * a.Dk, a.Dk, kChunk, a.Dk);
  static_assert(kChunk * kSubChunk == 8 * kThreads);
  cp_async<16>(tiles.scores + threadIdx.x * 8, between.prepared.scores + chunk * kChunk * kSubChunk + threadIdx.x * 8);
  cp_async_commit();
  const StateRows<kD> end(between.S + (border + 1) * size, a.Dk, a.Dv);
  cp_async_wait<1>();
  __syncthreads();
  multiply_states(end, tiles, a.scale);

  const int first = t + warp * kSubChunk, rows = a.L - first;
  float from_end[kD / 8][4] = {};
  add_from_state(from_end, tiles.v, warp * kSubChunk, tiles.state);
  cp_async_wait<0>();
  __syncthreads();
  {
    float dv[kD / 8][4] = {};
    add_values_from_state(dv, tiles, warp);
    __syncthreads();
    load_state_async(tiles, between.S + border * size, a.Dk, a.Dv);  // meanwhile, what the chunk's own rows give
    cp_async_commit();
    add_values(dv, tiles, warp);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane / 4 + 8 * i;
      if (row >= rows) continue;
      auto* to = reinterpret_cast<std::uint32_t*>(a.dv.row(b, h, first + row) + lane % 4 * 2);
#pragma unroll
      for (int j = 0; j < kD / 8; ++j) {
        if (j * 8 < a.Dv) store_global(to + 4 * j, pack(a.scale * dv[j][2 * i], a.scale * dv[j][2 * i + 1]));
      }
    }
  }
  read_from_end(from_end, tiles, warp);
  cp_async_wait<0>();
  __syncthreads();
  float from_start[kD / 8][4] = {};
  read_from_start(from_start, tiles, warp, a.scale);
  __syncthreads();
  store_read(tiles, warp, false, from_start, a.scale);
  Row<2> all[kSubChunk];
  load_rows(all, a, b, h, first, rows, lane * 2);
  store_read(tiles, warp, true, from_end, a.scale);
  __syncwarp();

  auto* totals = reinterpret_cast<float2*>(tiles.decays);  // [slices, kWarps, 32]: unused from now on
  const float* R = tiles.products + warp * kSubChunk * kSubChunk;
#pragma unroll 1
  for (int slice = 0; slice < a.Dk; slice += kSliceWidth) {
    const int d = slice + lane * 2;
    const int stored = d < a.Dk ? rows : 0;
    const auto read = [&](int i, bool of_b) {
      return *reinterpret_cast<const float2*>(tiles.read(warp * kSubChunk + i, of_b) + d);
    };
    Pairs pairs;
    Two dg[kSubChunk];
    auto* dq = pinned(a.dq.row(b, h, first) + d);
    const auto load = [&](int i, Two& q, Two& k, Two& gates) {
      convert(q, all[i].q);
      convert(k, all[i].k);
      convert(gates, all[i].g);
      for (float& x : gates) x = gate(i < rows ? x : 0.0f);
    };
    pairs.add(
        load, R, [&](int i) { return read(i, false); },
        [&](int i, const Two& row, const Two& product) {
          dg[i][0] = product[0], dg[i][1] = product[1];
          if (i < stored) store_global(reinterpret_cast<std::uint32_t*>(dq), packed_row(row));
          dq = pinned(dq + a.dq.stride_l);
        });

    Two total = {};
    auto* dk = pinned(a.dk.row(b, h, first + kSubChunk - 1) + d);
#pragma unroll
    for (int i = kSubChunk - 1; i >= 0; --i) {
      Two q, k, full;
      convert(q, all[i].q);
      convert(k, all[i].k);
      convert(full, read(i, true));
      Two x = {pairs.dk[i][0], pairs.dk[i][1]};
      multiply_add(x, pairs.decays[i], full);
      const bool passes_a_gate = first + i < a.L - 1;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        total[e] += dg[i][e] - (passes_a_gate ? k[e] * x[e] : 0.0f);
        dg[i][e] = total[e];
      }
      multiply_add(x, R[i * kSubChunk + i], q);
      if (i < stored) store_global(reinterpret_cast<std::uint32_t*>(dk), packed_row(x));
      dk = pinned(dk - a.dk.stride_l);
    }
    if (slice + kSliceWidth < a.Dk) load_rows(all, a, b, h, first, rows, d + kSliceWidth);
    float2* here = totals + slice / kSliceWidth * kWarps * 32 + lane;
    here[warp * 32] = float_row(total);
    __syncthreads();
    Two after;
    convert(after, *reinterpret_cast<const float2*>(tiles.restart + d));
    for (int w = kWarps - 1; w > warp; --w) after[0] += here[w * 32].x, after[1] += here[w * 32].y;
    auto* to = pinned(a.dg.row(b, h, first) + d);
#pragma unroll
    for (int i = 0; i < kSubChunk; ++i) {
      if (i < stored) {
        store_global(reinterpret_cast<float2*>(to), {dg[i][0] + after[0], dg[i][1] + after[1]});
      }
      to = pinned(to + a.dg.stride_l);
    }
  }
}

/// Elements of S at all borders.
std::size_t state_elements(const Bf16BackwardArguments& a) {
  return std::size_t(a.B) * std::size_t(a.H) * std::size_t(ceil_div(a.L, kChunk) + 1) * std::size_t(a.Dk * a.Dv);
}

}  // namespace

Bf16Arguments forward_of(const Bf16BackwardArguments& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, a.C, a.scale, a.q, a.k, a.v, a.g, a.initial_state, {}, {}};
}

Between reserve_between(const Bf16BackwardArguments& a) {
  auto* states = workspace<__nv_bfloat16>("gla --backward: states of chunks", 2 * state_elements(a));
  return {reserve_prepared(forward_of(a)), states, states + state_elements(a)};
}

Between prepare_gradients(const Bf16BackwardArguments& a) {
  const Between between = reserve_between(a);
  prepare(forward_of(a));
  return between;
}

void compute_gradients(const Bf16BackwardArguments& a, const Between& between) {
  const auto start = [&]<int kD>(std::integral_constant<int, kD>) {
    LaunchConfig config(dim3(unsigned(between.prepared.N), unsigned(a.H), unsigned(a.B)), kThreads,
                        std::size_t(Tiles<kD>::kBytes));
    config.starts_early = true;
    launch(gradients_kernel<kD>, config, a, between);
  };
  std::max(a.Dk, a.Dv) <= 64 ? start(std::integral_constant<int, 64>()) : start(std::integral_constant<int, 128>());
}

std::string gradients_unsupported(const Bf16BackwardArguments& a) {
  if (const std::string reason = subchunk_walks_backward_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128 || a.Dv > 128) return "Dk or Dv > 128: `subchunk_walks` needs less shared memory";
  return shared_memory_missing(Tiles<128>::kBytes);
}

std::int64_t between_memory(const Bf16BackwardArguments& a) {
  return prepared_memory(forward_of(a)) + std::int64_t(2 * state_elements(a) * sizeof(__nv_bfloat16));
}

}  // namespace tutorial::gla
