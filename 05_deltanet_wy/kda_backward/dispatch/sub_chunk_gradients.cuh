#pragma once
/// @file
/// The gradients of a chunk with gates of any strength, from sub-chunk to sub-chunk: `tensor_core` of `--backward`
/// (tensor_core.cu) has the idea and the formulas.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/fragments.cuh"
#include "05_deltanet_wy/chunk/warp_products.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/gradients_with_gates.cuh"
#include "05_deltanet_wy/delta_rule_backward/forward_arguments.hpp"
#include "05_deltanet_wy/delta_rule_backward/gradient_chunk.cuh"
#include "05_deltanet_wy/kda_backward.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/memory.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/sub_chunk.hpp"

namespace tutorial::kda::sub_chunks {

using namespace delta_rule;  // a chunk's products
using namespace tile;        // tiles and states

inline constexpr int kColumns = 64;           ///< of a block
inline constexpr int kGradientThreads = 256;  ///< two warps for each sub-chunk, and for each 16 columns
using ValueTile = SwizzledTile<kColumns>;     ///< rows of that many columns

/// A chunk, and the columns of Dk that a block has.
struct ChunkPart {
  int b, h, n, first;            ///< first: column
  View<__nv_bfloat16> v_new;     ///< [B, H, L, Dv]
  const float* factors;          ///< f of the chunk's positions; null: 1
  View<__nv_bfloat16> v_errors;  ///< [B, H, L, Dv]: what rounding leaves out of v_new, of marked chunks
  const void* mark;  ///< of T, 4 bytes: in a marked chunk (chunk/alike_keys.cuh) k~ is two bf16, and so is Y
};

/// The state of a chunk, as A fragments of its transpose.
struct StateFragments {
  const uint4* fragments;  ///< the lane's first one
  int stride;              ///< from 16 columns of Dv to the next

  /// That of 16 columns from j on and 16 rows from d on.
  __device__ __forceinline__ uint4 operator()(int j, int d) const {
    return load_for_update(fragments + j * stride + d / 16 * 32);
  }
};

/// What products read; Shape::kDk columns hold all of Dv.
template <class Shape>
struct ProductTiles {
  __nv_bfloat16 dO[kChunk * Shape::kDk];     ///< rows of do
  __nv_bfloat16 dV[kChunk * Shape::kDk];     ///< those of the gradient of v_new
  __nv_bfloat16 v_new[kChunk * Shape::kDk];  ///< those of v_new
  __nv_bfloat16 Y[kChunk * kChunk];  ///< of Q K^T; of marked chunks block (s, r) is what rounding leaves out of (r, s)
  __nv_bfloat16 Z[kChunk * kChunk];  ///< of -K K^T
};

/// The pairs of each sub-chunk: element (t, i) of Y or of Z.
using OwnPairs = float[kSubChunks][kSubChunk][kSubChunk];

/// A block's memory.
template <class Shape>
struct ChunkMemory {
  union {
    ProductTiles<Shape> of;
    float sums[4][kChunk * kColumns];  ///< when `of` is not read any more; sums_place() says where an element lies
  };
  __nv_bfloat16 Q[kChunk * kColumns];         ///< q~
  __nv_bfloat16 K[kChunk * kColumns];         ///< k+~
  __nv_bfloat16 K_end[kChunk * kColumns];     ///< k~
  __nv_bfloat16 K_errors[kChunk * kColumns];  ///< what rounding leaves out of k~, if the chunk is marked
  alignas(16) OwnPairs own_Y;                 ///< of Y
  alignas(16) OwnPairs own_Z;                 ///< of Z
  float decays[kSubChunks][kColumns];         ///< D
  float state[kColumns];                      ///< the sums over the rows of S . dS
  float factors[kChunk];                      ///< f
  float later[kSubChunks][kColumns];          ///< what a sub-chunk adds to dg before it
  float earlier[kSubChunks][kColumns];        ///< and behind it
  bool alike;                                 ///< whether the chunk is marked
};

/// The sums of a chunk that go through shared memory.
enum Sum { kOfQueries, kReading, kWritingPairs, kWritingState };

/// The place of an element of sums. The xor keeps eight rows in different banks.
__device__ __forceinline__ int sums_place(int row, int column) {
  return row * kColumns + (column ^ row % 8 * 8);
}

/// A lane's column of a sub-chunk's rows. Rows and columns that do not exist are zeros, with gates of 1.
struct LaneRows {
  std::uint32_t qk[kSubChunk];  ///< two bf16, q in the lower half
  float gates[kSubChunk];

  /// @param first the sub-chunk's first position @param d the lane's column
  __device__ __forceinline__ LaneRows(const Bf16BackwardArguments& g, int b, int h, int first, int d) {
    const bool has_column = d < g.Dk;
    d = min(d, g.Dk - 1);
    const int start = min(first, g.L - 1);
    const auto* q = reinterpret_cast<const unsigned short*>(g.q.row(b, h, start) + d);
    const auto* k = reinterpret_cast<const unsigned short*>(g.k.row(b, h, start) + d);
    const float* gate_of = g.g.row(b, h, start) + d;
#pragma unroll
    for (int t = 0; t < kSubChunk; ++t) {
      const std::uint32_t low = load_global(q), high = load_global(k);
      const float x = load_global(gate_of);
      const bool exists = has_column && first + t < g.L;
      qk[t] = exists ? low | high << 16 : 0;
      gates[t] = exists ? gate(x) : 1.0f;
      const bool goes_on = first + t + 1 < g.L;
      q += goes_on ? g.q.stride_l : 0;
      k += goes_on ? g.k.stride_l : 0;
      gate_of += goes_on ? g.g.stride_l : 0;
    }
  }
  /// Of row t of the sub-chunk.
  __device__ __forceinline__ float query(int t) const {
    return unpack(qk[t]).x;
  }
  /// Likewise.
  __device__ __forceinline__ float key(int t) const {
    return unpack(qk[t]).y;
  }
};

/// Fills q~, k+~, k~ and D of a sub-chunk, a column per lane.
/// @param alike whether what rounding leaves out of k~ is wanted, too
template <class Shape>
__device__ __forceinline__ void decay_sub_chunk(ChunkMemory<Shape>& to, const LaneRows& rows, int sub_chunk, int column,
                                                bool alike) {
  const float* f = to.factors + sub_chunk * kSubChunk;
  const auto put = [&](__nv_bfloat16* tile, int t, float x) {
    tile[ValueTile::unit(sub_chunk * kSubChunk + t, column / 8 * 8) + column % 8] = __nv_bfloat16(x);
  };
  float decay = 1;
#pragma unroll
  for (int t = 0; t < kSubChunk; ++t) {
    decay *= rows.gates[t];
    put(to.Q, t, decay * rows.query(t));
    put(to.K, t, f[t] * decay * rows.key(t));
  }
  to.decays[sub_chunk][column] = decay;
  decay = 1;
#pragma unroll
  for (int t = kSubChunk - 1; t >= 0; --t) {
    const float x = f[t] * decay * rows.key(t);
    put(to.K_end, t, x);
    if (alike) put(to.K_errors, t, x - __bfloat162float(__nv_bfloat16(x)));
    decay *= rows.gates[t];
  }
}

/// What rounding leaves out of row r of the blocks of Y: that of block (r, s) to block (s, r).
/// @param scores before they are rounded, one warp's
__device__ __forceinline__ void put_errors_of_row(const SwizzledTile<kChunk>& Y, const BlockRow& scores, int r) {
  const int lane = fresh_lane();
#pragma unroll
  for (int s = 0; s < kBlocks; ++s) {
    if (s >= r) continue;
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      float two[] = {scores[s][part / 2][part % 2 * 2], scores[s][part / 2][part % 2 * 2 + 1]};
      keep_errors(two);
      const int unit = Y.unit(s * kBlock + lane / 4 + part % 2 * 8, r * kBlock + part / 2 * 8);
      *reinterpret_cast<std::uint32_t*>(Y.data + unit + lane % 4 * 2) = pack(two[0], two[1]);
    }
  }
}

/// A block of 16 positions of sums, [16, 16] per warp: two accumulators.
using Sums = float[2][4];

/// Each column times its decay. @param decays [16] of the warp's columns
__device__ __forceinline__ void decay_columns(Sums& sums, const float* decays) {
  const int p = fresh_lane() % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 two = *reinterpret_cast<const float2*>(decays + half * 8 + p);
    sums[half][0] *= two.x;
    sums[half][1] *= two.y;
    sums[half][2] *= two.x;
    sums[half][3] *= two.y;
  }
}

/// sums += the block (r, s) of Y times the rows of sub-chunk s, or its transpose times those of sub-chunk r.
/// @param column the first of the warp's 16 @param has_errors whether to take what rounding leaves out of the block
template <bool kIsTransposed>
__device__ __forceinline__ void add_block(Sums& sums, const SwizzledTile<kChunk>& Y, int r, int s, const ValueTile& X,
                                          int column, bool has_errors = false) {
  const int lane = fresh_lane(), y_row = (has_errors ? s : r) * kBlock, y_column = (has_errors ? r : s) * kBlock;
  std::uint32_t y[4], x[4];
  if (kIsTransposed) {
    ldmatrix_x4_trans(y, Y.data + Y.unit(y_row + lane / 16 * 8 + lane % 8, y_column + lane / 8 % 2 * 8));
  } else {
    ldmatrix_x4(y, Y.data + Y.unit(y_row + lane % 16, y_column + lane / 16 * 8));
  }
  const int row = (kIsTransposed ? r : s) * kBlock + lane % 16;
  ldmatrix_x4_trans(x, X.data + X.unit(row, column + lane / 16 * 8));
  mma_m16n8k16(sums[0], y, {x[0], x[1]});
  mma_m16n8k16(sums[1], y, {x[2], x[3]});
}

/// Writes 16 columns of the sums of a chunk to shared memory.
__device__ __forceinline__ void store_sums(float* to, const Sums (&sums)[kBlocks], int column) {
  const int lane = fresh_lane();
  column += lane % 4 * 2;
#pragma unroll
  for (int t = 0; t < kChunk / 8; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float* two = &sums[t / 2][half][t % 2 * 2];
      *reinterpret_cast<float2*>(to + sums_place(t * 8 + lane / 4, column + half * 8)) = {two[0], two[1]};
    }
  }
}

/// Adds the products of the elements of two fragments to the sums of the rows of S, which are their columns: those of
/// the columns p and p + 1, and 8 + p and 9 + p, p = 2 (lane % 4).
__device__ __forceinline__ void add_products(float (&sums)[4], const uint4& x, const uint4& y) {
  const auto add = [](float* two, std::uint32_t x, std::uint32_t y) {
    const float2 a = unpack(x), b = unpack(y);
    two[0] += a.x * b.x;
    two[1] += a.y * b.y;
  };
  add(sums, x.x, y.x);
  add(sums, x.y, y.y);
  add(sums + 2, x.z, y.z);
  add(sums + 2, x.w, y.w);
}

/// What crosses sub-chunks: products with S and dS, and the blocks of Y and Z below the diagonal, each sum times the
/// decays of the sub-chunks that it crosses. They replace the tiles that they were computed from. The first four warps
/// compute the sums for queries and for reads, the others those for writes.
/// @param S,dS S(j, d): an A fragment of S^T, columns 16 j of Dv and d of Dk; dS(j, d)
/// @param alike whether the chunk is marked
template <class Shape, class State>
__device__ __forceinline__ void cross_sub_chunks(ChunkMemory<Shape>& memory, const Bf16BackwardArguments& g,
                                                 const State& S, const State& dS, int first, int warp, bool alike) {
  const typename Shape::KeyTile dO{memory.of.dO}, dV{memory.of.dV}, v_new{memory.of.v_new};
  const ValueTile Q{memory.Q}, K{memory.K}, K_end{memory.K_end}, K_errors{memory.K_errors};
  const SwizzledTile<kChunk> Y{memory.of.Y}, Z{memory.of.Z};
  const int lane = int(lane_index()), column = warp % 4 * 16, d = first + column;
  const int unit = dO.unit(lane % 16, lane / 16 * 8);
  const int count = d < g.Dk ? g.Dv / 16 : 0;  // a warp without columns computes with zeros

  Sums left[kBlocks] = {}, right[kBlocks] = {};
  if (warp < 4) {
    Sums(&queries)[kBlocks] = left, (&reading)[kBlocks] = right;
#pragma unroll
    for (int j = 0; j < Shape::kDk / 16; ++j) {
      const uint4 s[] = {j < count ? S(j, d) : uint4{}};
      add_from_fragments<Shape>(queries, dO, unit, j, s);
      add_from_fragments<Shape>(reading, dV, unit, j, s);
    }
#pragma unroll
    for (int r = 0; r < kBlocks; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          queries[r][half][e] *= g.scale;
          reading[r][half][e] = -reading[r][half][e];
        }
      }
#pragma unroll
      for (int s = 0; s < r; ++s) {
        decay_columns(queries[r], memory.decays[s] + column);
        decay_columns(reading[r], memory.decays[s] + column);
        add_block<false>(queries[r], Y, r, s, K_end, column);
        if (alike) {
          add_block<false>(queries[r], Y, r, s, K_end, column, true);
          add_block<false>(queries[r], Y, r, s, K_errors, column);
        }
        add_block<false>(reading[r], Z, r, s, K_end, column);
      }
    }
  } else {
    Sums(&pairs)[kBlocks] = left, (&state)[kBlocks] = right;
    float products[4] = {};
#pragma unroll
    for (int j = 0; j < Shape::kDk / 16; ++j) {
      const uint4 s[] = {j < count ? dS(j, d) : uint4{}};
      add_products(products, s[0], j < count ? S(j, d) : uint4{});
      add_from_fragments<Shape>(state, v_new, unit, j, s);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float sum = products[i];
#pragma unroll
      for (int lanes = 4; lanes < 32; lanes *= 2) sum += shuffle_xor(sum, lanes);
      if (lane < 4) memory.state[column + i / 2 * 8 + lane * 2 + i % 2] = sum;
    }
#pragma unroll
    for (int s = 0; s < kBlocks; ++s) {
#pragma unroll
      for (int r = kBlocks - 1; r > s; --r) {
        decay_columns(state[s], memory.decays[r] + column);
        decay_columns(pairs[s], memory.decays[r] + column);
        add_block<true>(pairs[s], Y, r, s, Q, column);
        if (alike) add_block<true>(pairs[s], Y, r, s, Q, column, true);
        add_block<true>(pairs[s], Z, r, s, K, column);
      }
    }
  }
  __syncthreads();  // no warp reads the tiles any more
  store_sums(memory.sums[warp < 4 ? kOfQueries : kWritingPairs], left, column);
  store_sums(memory.sums[warp < 4 ? kReading : kWritingState], right, column);
  __syncthreads();
}

/// All gradients of 64 columns of Dk of a chunk, and dbeta if they are the first ones. Called by all kGradientThreads.
/// @tparam Shape its keys are the columns of Dv
/// @param S,dS the state before the chunk and the gradient of the one behind it, as cross_sub_chunks() reads them
template <class Shape, class State>
__device__ __forceinline__ void gradients_of_chunk(const Bf16BackwardArguments& g, const ChunkPart& x, const State& S,
                                                   const State& dS) {
  const int b = x.b, h = x.h, first = x.first, t = x.n * kChunk, rows = g.L - t;
  // The shuffle tells the compiler that `warp` is the same in all lanes.
  const int warp = __shfl_sync(kAllLanes, int(threadIdx.x) / 32, 0), sub_chunk = warp % 4;
  const int first_row = sub_chunk * kSubChunk, column = warp / 4 * 32 + int(lane_index()), d = first + column;
  auto& memory = *dynamic_shared<ChunkMemory<Shape>>();
  const typename Shape::KeyTile dO{memory.of.dO}, dV{memory.of.dV}, v_new{memory.of.v_new};

  const auto load = [&](const typename Shape::KeyTile& tile, const __nv_bfloat16* row, std::int64_t stride) {
    load_columns_async<kGradientThreads, Shape::kDk>(hide_from_compiler(int(threadIdx.x)), tile, row, stride, rows,
                                                     g.Dv);
  };
  load(dO, g.d_o.row(b, h, t), g.d_o.stride_l);
  load(v_new, x.v_new.row(b, h, t), x.v_new.stride_l);
  load(dV, g.dv.row(b, h, t), g.dv.stride_l);
  cp_async_commit();
  if (threadIdx.x < kChunk) {
    memory.factors[threadIdx.x] = x.factors ? load_for_update(x.factors + threadIdx.x) : 1;
  }
  if (threadIdx.x == 0) memory.alike = is_marked(load_early(static_cast<const std::uint32_t*>(x.mark)));
  __syncthreads();
  const bool alike = memory.alike;
  decay_sub_chunk(memory, LaneRows(g, b, h, t + first_row, d), sub_chunk, column, alike);
  cp_async_wait<0>();
  __syncthreads();
  const auto store_own = [](OwnPairs& own, int r, int row, int column, const BlockSums& block) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float* to = &own[r][row + i / 2 * 8][column + i % 2 * 8];
      *reinterpret_cast<float2*>(to) = {block[i % 2][i / 2 * 2], block[i % 2][i / 2 * 2 + 1]};
    }
  };
  const bool has_Y = warp < kBlocks;  // else Z
  const int r = has_Y ? warp : 2 * kBlocks - 1 - warp;
  const typename Shape::KeyTile& X = has_Y ? dO : dV;
  BlockRow sums = {};
  products_with_keys(sums, X, v_new, r);
  if (alike) {  // those with the errors of v_new, which take its place for a while
    __syncthreads();
    load(v_new, x.v_errors.row(b, h, t), x.v_errors.stride_l);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    products_with_keys(sums, X, v_new, r);
    __syncthreads();
    load(v_new, x.v_new.row(b, h, t), x.v_new.stride_l);
    cp_async_commit();
  }
  if (has_Y) {
    const SwizzledTile<kChunk> Y{memory.of.Y};
    put_scores_of_row(
        Y, sums, warp, [&](int, int, float product) { return g.scale * product; },
        [&](int row, int column, const BlockSums& block) { store_own(memory.own_Y, warp, row, column, block); });
    if (alike) put_errors_of_row(Y, sums, warp);
  } else {
    put_scores_of_row(
        SwizzledTile<kChunk>{memory.of.Z}, sums, r, [&](int, int, float product) { return -product; },
        [&](int row, int column, const BlockSums& block) { store_own(memory.own_Z, r, row, column, block); });
    __syncwarp();
    if (const int i = int(lane_index()), row = r * kBlock + i; i < kBlock && first == 0 && row < rows) {
      const float beta = fmaxf(load_global(g.beta.row(b, h, t + row)), kLeastBeta);
      store_global(g.dbeta.row(b, h, t + row), -memory.own_Z[r][i][i] / (beta * beta));
    }
  }
  if (alike) cp_async_wait<0>();
  __syncthreads();
  cross_sub_chunks(memory, g, S, dS, first, warp, alike);

  const bool has_column = d < g.Dk;
  const LaneRows own(g, b, h, t + first_row, d);
  const auto sum = [&](Sum of, int i) -> float& { return memory.sums[of][sums_place(first_row + i, column)]; };
  const auto& Y = memory.own_Y[sub_chunk];
  const auto& Z = memory.own_Z[sub_chunk];
  const float* f = memory.factors + first_row;
  const int count = has_column ? rows - first_row : 0;
  float dg[kSubChunk];  // first R, and the pairs' part of it
  {
    float keys[kSubChunk], decay = 1;
    __nv_bfloat16* dq_row = g.dq.row(b, h, t + first_row) + d;
#pragma unroll
    for (int i = 0; i < kSubChunk; ++i) {
      decay *= own.gates[i];
      float dq = decay * sum(kOfQueries, i), reading = decay * sum(kReading, i);
#pragma unroll
      for (int m = 0; m < i; ++m) {
        keys[m] *= own.gates[i];
        dq += Y[i][m] * keys[m];
        reading += Z[i][m] * keys[m];
      }
      keys[i] = f[i] * own.key(i);
      dg[i] = own.query(i) * dq + keys[i] * reading;
      if (i < count) store_global(dq_row, __nv_bfloat16(dq + Y[i][i] * keys[i]));
      dq_row += g.dq.stride_l;
      sum(kReading, i) = reading;
    }
  }
  float written[kSubChunk];
  {
    float pairs[kSubChunk] = {}, decay = 1;
    __nv_bfloat16* dk_row = g.dk.row(b, h, t + first_row + kSubChunk - 1) + d;
#pragma unroll
    for (int i = kSubChunk - 1; i >= 0; --i) {
      const float k = f[i] * own.key(i), q = own.query(i);
      const float writing = decay * sum(kWritingPairs, i) + pairs[i], to_state = decay * sum(kWritingState, i);
      written[i] = k * to_state;
      dg[i] -= k * writing;
      if (i < count) store_global(dk_row, __nv_bfloat16(sum(kReading, i) + writing + to_state + Y[i][i] * q));
      dk_row -= g.dk.stride_l;
#pragma unroll
      for (int m = 0; m < i; ++m) pairs[m] = own.gates[i] * (pairs[m] + Y[i][m] * q + Z[i][m] * k);
      decay *= own.gates[i];
    }
  }
  // Of the sub-chunk: dg from each position on, and what has been written before it.
  float from_end = 0, to_end = 0;
#pragma unroll
  for (int i = kSubChunk - 1; i >= 0; --i) {
    from_end += dg[i];
    dg[i] = from_end;
  }
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) {
    dg[i] += to_end;
    to_end += written[i];
  }
  memory.later[sub_chunk][column] = from_end;
  memory.earlier[sub_chunk][column] = to_end;
  __syncthreads();
  float rest = memory.state[column];
#pragma unroll
  for (int r = 0; r < kSubChunks; ++r) rest *= memory.decays[r][column];
#pragma unroll
  for (int r = 0; r < kSubChunks; ++r) {
    if (r < sub_chunk) rest += memory.earlier[r][column];
    if (r > sub_chunk) rest += memory.later[r][column];
  }
  float* dg_row = g.dg.row(b, h, t + first_row) + d;
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) {
    if (i < count) store_global(dg_row, dg[i] + rest);
    dg_row += g.dg.stride_l;
  }
}

}  // namespace tutorial::kda::sub_chunks
