/// @file
/// `materialized` of --backward: the states of all chunks go to memory, and then all chunks are computed at once.
///
/// Idea: only the states depend on the chunks before. A first kernel walks the chunks and does nothing else: it updates
/// S from the first chunk on and, in other blocks at the same time, dS from the last chunk, and stores both in bf16 at
/// each border of two chunks. That is as precise as what `subchunk_walks` multiplies, which is a bf16 copy, too. A
/// second kernel has one block per chunk. Each warp takes one sub-chunk. What it needs of the other sub-chunks of the
/// chunk it gets from products with them. The gates of dq and dk belong to the columns of the result, so the warp
/// multiplies its sums by the decay of a sub-chunk before it adds what lies on the near side of it. As all that the
/// gradients consist of is in one block, A and B of `subchunk_walks` never reach device memory.
/// Improves on: a block of `subchunk_walks` does all work of 64 columns of a head, chunk by chunk, three times.
/// Unchanged: prepare(), and pairs within a sub-chunk in fp32, as in `subchunk_walks`, though in another order (Pairs).
/// Equation: q~, k~, D, P as in prepare.hpp; e, f, R as in `subchunk_walks`; S_n and S'_n = dS / scale are the states
/// after n chunks. r, s count the sub-chunks of chunk n; D_{r..s} is the product D_r ... D_s, or 1 if s < r
///
///   S_{n+1} = diag(D_3) (... diag(D_0) S_n + k~_0^T V_0 ...) + k~_3^T V_3        states_kernel
///   S'_n    = diag(D_0) (... diag(D_3) S'_{n+1} + q~_3^T dO_3 ...) + q~_0^T dO_0  the same, from the last chunk
///   A_r  = D_{0..r-1} . dO_r S_n^T    + sum over s < r of D_{s+1..r-1} . R_rs k~_s         gradients_kernel
///   B_r  = D_{r+1..3} . V_r S'_{n+1}^T + sum over s > r of D_{r+1..s-1} . R_sr^T q~_s
///   dV_r = scale ((D_{r+1..3} . k~_r) S'_{n+1} + P_rr^T dO_r + sum over s > r of P_sr^T dO_s)
///          P_sr = q~_s (D_{r+1..s-1} . k~_r)^T
///   W_n  = scale * sums of the rows of S_{n+1} . S'_{n+1}
///   dq, dk, dg from A, B and W as in `subchunk_walks`; S_N lacks the last key there, too
///
/// Shapes: as `subchunk_walks`. In device memory S and S' [B, H, N + 1, Dv / 8, Dk / 8, 8, 8] bf16, tiles of S^T whose
/// rows are 16 bytes, so that an accumulator's tile is one store of 128 bytes and ldmatrix reads it either way; and
/// what prepare() leaves.
/// Thread mapping: block (direction and tile, h, b) of states_kernel has 64 rows and 64 columns of S. Its 4 warps share
/// the columns: no element of S needs another one. Block (n, h, b) of gradients_kernel has chunk n. Each of its warps
/// has one sub-chunk with all columns; in the part with the pairs a lane has two columns.
/// Resources: gradients_kernel: 107 KB of shared memory at Dk = Dv = 128, two blocks per multiprocessor. S' and then S
/// lie in the same place, and at last A and B in the place of all tiles.
/// Work: on tensor cores per position 10 Dk Dv operations, and 2 (3 Dk + 2 Dv) for each of 40 pairs.
/// Bytes: prepare()'s; q~, k~, v and do twice, and 8 Dk Dv per chunk written and read; q, k, g and the gradients once.
/// Bound by: in gradients_kernel, waits that eight warps per multiprocessor cannot hide.
/// Requires: as `subchunk_walks`, with Dk and Dv up to 128, and a GPU that gives a block 107 KB of shared memory.
/// Weakness: the states, q~ and k~ cross device memory.
/// Sources: arXiv 2312.06635, sections 3.3 (materialization) and 4.3, and appendix.

#include <cuda_runtime.h>

#include <algorithm>
#include <type_traits>

#include "03_gla/gla/dispatch/prepared_chunks.hpp"
#include "03_gla/gla/prepare.hpp"
#include "03_gla/gla/prepared_tiles.cuh"
#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/between.hpp"
#include "03_gla/gla_backward/pairs_of_sub_chunk.cuh"
#include "03_gla/gla_backward/requirements.hpp"
#include "03_gla/gla_packed/dispatch/prepare.hpp"
#include "03_gla/gla_packed_backward/dispatch/materialized.hpp"
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
#include "common/tile/decayed_tiles.cuh"
#include "common/tile/head_of_chunks.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/packed_chunks.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/sequences_alone.cuh"
#include "common/tile/state.cuh"
#include "common/tile/swizzled_tile.cuh"
#include "common/tile/walk_sub_chunk.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kWidth = 64;  // rows and columns of a state in a block of states_kernel
using Walk = ChunkShape<kWidth, kWidth>;
constexpr int kPipelineDepth = 3;  // chunks in shared memory

/// Starts the copies of a chunk's decays to [kSubChunks, kWidth], from column d of Dk on; zeros for columns beyond Dk.
template <int kWidth>
__device__ __forceinline__ void load_decays_async(float* decays, const Prepared& prepared, std::int64_t chunk, int d,
                                                  int Dk) {
  for (int i = hide_from_compiler(int(threadIdx.x)); i < tile::kSubChunks * kWidth / 4; i += tile::kThreads) {
    const int row = i / (kWidth / 4), column = d + i % (kWidth / 4) * 4;
    cp_async<16>(decays + i * 4, prepared.decays + (chunk * tile::kSubChunks + row) * Dk + column, column < Dk);
  }
}

/// Writes the warp's columns of S in bf16.
/// @param state the tile of the block's first column and row
/// @param rows,columns of the block that exist
__device__ __forceinline__ void store_tiles(__nv_bfloat16* state, const Walk::State& S, int Dk, int rows, int columns) {
  static_assert(Walk::kWarpColumns == 16);
  const int warp_column = warp_index() * 16;
  if (warp_column >= columns) return;
  auto* to = reinterpret_cast<std::uint32_t*>(state + warp_column * Dk) + fresh_lane();
#pragma unroll
  for (int d = 0; d < Walk::kDk / 8; ++d) {
    if (d < rows / 8) {
      store_global(to + d * 32, pack(S[0][d][0], S[0][d][1]));
      store_global(to + Dk / 8 * 32 + d * 32, pack(S[0][d][2], S[0][d][3]));
    }
  }
}

/// The blocks that compute the states of a head, those for S before those for S'.
int state_blocks(const Bf16BackwardArguments& a) {
  return 2 * ceil_div(a.Dv, kWidth) * ceil_div(a.Dk, kWidth);
}

/// S at all borders, and S' from the last. A border is a chunk, or the end of a head or sequence. @param block number of state_blocks()
__device__ __forceinline__ void compute_states(const Bf16BackwardArguments& a, const Between& between,
                                               const HeadOfChunks& head, int block, int blocks) {
  const int b = head.b, h = head.h, N = head.N;
  const bool is_from_end = block >= blocks / 2;
  const int tile = block % (blocks / 2), row_tiles = (a.Dk - 1) / kWidth + 1;
  const int first_row = tile % row_tiles * kWidth, rows = min(kWidth, a.Dk - first_row);
  const int first_column = tile / row_tiles * kWidth, columns = min(kWidth, a.Dv - first_column);
  const std::int64_t size = std::int64_t(a.Dk) * a.Dv;
  const __nv_bfloat16* keys = is_from_end ? between.prepared.q : between.prepared.k;
  const View<const __nv_bfloat16> values = is_from_end ? a.d_o : a.v;
  const View<const float> start = is_from_end ? a.dfinal_state : a.initial_state;
  __nv_bfloat16* states =
      (is_from_end ? between.dS : between.S) + (head.first + head.head) * size + first_column * a.Dk + first_row * 8;

  const auto tiles_of = [&](int i) {
    return DecayedTiles<Walk>(dynamic_shared<unsigned char>() +
                              i % kPipelineDepth * DecayedTiles<Walk>::kBytesForStates);
  };
  const auto load = [&](int i) {
    if (i < N) {
      const DecayedTiles<Walk> to = tiles_of(i);
      const int n = is_from_end ? N - 1 - i : i, t = n * kChunk;
      const std::int64_t chunk = head.first + n;
      // S_N is for dg_L alone: without the last key, whose part of the final state has passed no gate.
      const int positions = is_from_end ? kChunk : a.L - 1 - t;
      load_tile_async(to.K, keys + chunk * kChunk * a.Dk + first_row, a.Dk, positions, rows);
      load_tile_async(to.V, values.row(b, h, t) + first_column, values.stride_l, a.L - t, columns);
      load_decays_async<kWidth>(to.decays, between.prepared, chunk, first_row, a.Dk);
    }
    cp_async_commit();  // near the end an empty group keeps the count right
  };
  let_next_kernel_start();
  load(0);
  load(1);
  Walk::State S;
  load_state<Walk>(S, start.data ? start.row(b, h, first_row) + first_column : nullptr, start.stride_l, rows, columns);
  if (is_from_end) scale_state<Walk>(S, 1 / a.scale);
  store_tiles(states + (is_from_end ? N * size : 0), S, a.Dk, rows, columns);
  for (int i = 0; i < N; ++i) {
    cp_async_wait<1>();
    __syncthreads();
    load(i + 2);
    const DecayedTiles<Walk> from = tiles_of(i);
    float O[Walk::kWarpColumns / 8][4];  // unused
#pragma unroll 1
    for (int step = 0; step < kSubChunks; ++step) {
      walk_sub_chunk<Walk, false>(S, O, from, (is_from_end ? kSubChunks - 1 - step : step) * kSubChunk);
    }
    store_tiles(states + (is_from_end ? N - 1 - i : i + 1) * size, S, a.Dk, rows, columns);
  }
  if (is_from_end && a.dinitial_state.data) {
    scale_state<Walk>(S, a.scale);
    store_state<Walk>(a.dinitial_state.row(b, h, first_row) + first_column, S, a.dinitial_state.stride_l, rows,
                      columns);
  }
}

/// Grid (state_blocks(), H, B).
__global__ void __launch_bounds__(kThreads, 4) states_kernel(Bf16BackwardArguments a, Between between) {
  compute_states(a, between, HeadOfChunks(int(blockIdx.z), int(blockIdx.y), a.H, between.prepared.N), int(blockIdx.x),
                 int(gridDim.x));
}

/// The same of packed sequences. Grid (entries of the list x state_blocks(), H).
/// @param list of sequences, see list_segments(), each a single segment
__global__ void __launch_bounds__(kThreads, 4)
    packed_states_kernel(PackedBf16BackwardArguments p, Between between, const int4* list, int blocks) {
  const int4 sequence = load_global(list + int(blockIdx.x) / blocks);
  if (sequence.y == sequence.z) return;
  compute_states(sequence_of(p.all, sequence.x, sequence.y, sequence.z - sequence.y), between,
                 HeadOfChunks(0, int(blockIdx.y), p.all.H, between.prepared.N, sequence.x, p.N, sequence.y, sequence.z),
                 int(blockIdx.x) % blocks, blocks);
}

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

/// All gradients of chunk n.
template <int kD>
__device__ __forceinline__ void compute_gradients(const Bf16BackwardArguments& a, const Between& between,
                                                  const HeadOfChunks& head, int n) {
  const int b = head.b, h = head.h, t = n * kChunk;
  const int lane = int(lane_index()), warp = int(threadIdx.x) / 32;
  const std::int64_t chunk = head.first + n, border = chunk + head.head, size = std::int64_t(a.Dk) * a.Dv;
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

/// All gradients of a chunk. Grid (N, H, B).
template <int kD>
__global__ void __launch_bounds__(kThreads, 2) gradients_kernel(Bf16BackwardArguments a, Between between) {
  compute_gradients<kD>(a, between, HeadOfChunks(int(blockIdx.z), int(blockIdx.y), a.H, between.prepared.N),
                        int(blockIdx.x));
}

/// The same of packed sequences. Grid (packed_chunks(), H).
template <int kD>
__global__ void __launch_bounds__(kThreads, 2) packed_gradients_kernel(PackedBf16BackwardArguments p, Between between) {
  const PackedChunk chunk(p.cu_seqlens, p.N, int(blockIdx.x));
  if (chunk.begin == chunk.end) return;
  const int n = chunk.sequence, begin = load_global(p.cu_seqlens + n);
  compute_gradients<kD>(sequence_of(p.all, n, begin, chunk.end - begin), between,
                        HeadOfChunks(0, int(blockIdx.y), p.all.H, between.prepared.N, n, p.N, begin, chunk.end),
                        (chunk.begin - begin) / kChunk);
}

/// Starts the last kernel. @param chunks its grid
template <class Arguments>
void start_gradients(const Arguments& arguments, int widest, const Between& between, dim3 chunks,
                     void (*narrow)(Arguments, Between), void (*wide)(Arguments, Between)) {
  LaunchConfig config(chunks, kThreads, std::size_t(widest <= 64 ? Tiles<64>::kBytes : Tiles<128>::kBytes));
  config.starts_early = true;
  launch(widest <= 64 ? narrow : wide, config, arguments, between);
}

/// Elements of S or of dS at all borders of packed sequences.
std::int64_t border_elements(const PackedBf16BackwardArguments& p) {
  const Bf16BackwardArguments& a = p.all;
  return std::int64_t(a.H) * (packed_chunks(extents_of(a), p.N) + p.N) * a.Dk * a.Dv;
}

}  // namespace

void materialized_backward(const Bf16BackwardArguments& a) {
  const Between between = reserve_between(a);
  prepare(forward_of(a));
  launch(states_kernel,
         {dim3(unsigned(state_blocks(a)), unsigned(a.H), unsigned(a.B)), kThreads,
          kPipelineDepth * std::size_t(DecayedTiles<Walk>::kBytesForStates)},
         a, between);
  start_gradients(a, std::max(a.Dk, a.Dv), between, dim3(unsigned(between.prepared.N), unsigned(a.H), unsigned(a.B)),
                  gradients_kernel<64>, gradients_kernel<128>);
}

void packed_materialized_backward(const PackedBf16BackwardArguments& p) {
  const Bf16BackwardArguments& a = p.all;
  const auto elements = border_elements(p);
  auto* states = workspace<__nv_bfloat16>("gla --backward: states of chunks", std::size_t(2 * elements));
  const Between between{prepare({forward_of(a), p.cu_seqlens, p.N}), states, states + elements};
  const int4* list = list_segments(p.cu_seqlens, whole_sequences(a.L, p.N));
  launch(packed_states_kernel,
         {dim3(unsigned(p.N) * unsigned(state_blocks(a)), unsigned(a.H)), kThreads,
          kPipelineDepth * std::size_t(DecayedTiles<Walk>::kBytesForStates)},
         p, between, list, state_blocks(a));
  start_gradients(p, std::max(a.Dk, a.Dv), between, dim3(unsigned(between.prepared.N), unsigned(a.H)),
                  packed_gradients_kernel<64>, packed_gradients_kernel<128>);
  hand_states_on(p);
}

std::int64_t packed_materialized_backward_memory(const PackedBf16BackwardArguments& p) {
  return prepared_memory(forward_of(p.all), packed_chunks(extents_of(p.all), p.N)) +
         std::int64_t(2 * sizeof(__nv_bfloat16)) * border_elements(p) + std::int64_t(sizeof(int4)) * p.N;
}

std::string materialized_backward_unsupported(const Bf16BackwardArguments& a) {
  if (const std::string reason = subchunk_walks_backward_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128 || a.Dv > 128) return "Dk or Dv > 128: `subchunk_walks` needs less shared memory";
  return shared_memory_missing(Tiles<128>::kBytes);
}

}  // namespace tutorial::gla
