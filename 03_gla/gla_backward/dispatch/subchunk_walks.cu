/// @file
/// `subchunk_walks` of --backward: tensor cores for what crosses a sub-chunk, fp32 for what stays inside it.
///
/// Idea: three walks from sub-chunk to sub-chunk through a state, as in the operator's `subchunk_walk`: with S for dq,
/// with dS from the end for dk and for dv. The walk for dv is that stage's on other inputs. In the walks for dq and dk
/// the gates belong to the columns of the result, so no decay is multiplied into a product: decays_kernel does that
/// afterwards, in fp32, where it adds the pairs within a sub-chunk and forms dg. These pairs are rounded alike in
/// q . dq' and in k . dk' and cancel; the products with the states are rounded differently. Their errors would add up
/// over the sequence, as dg is a running sum. So the sum starts anew at the end of each chunk, from S . dS, which is dg
/// there.
/// Improves on: `chunkwise` computes on the CPU, one head per thread.
/// Unchanged: the equations. A chunk has 64 positions and a sub-chunk 16; prepare() is the operator's.
/// Equation: q~, k~, D, P as in prepare.hpp; S' = dS / scale; row t of e is exp(g_1 + ... + g_t), row i of f is
/// exp(g_{i+1} + ... + g_16), both from the sub-chunk's first position on
///
///   A_r = dO_r S^T       S  = diag(D_r) S  + k~_r^T V_r      for each sub-chunk r, forwards; S_n after each chunk kept
///   B_r = V_r S'^T       S' = diag(D_r) S' + q~_r^T dO_r     backwards; W_n = scale * rows' sums of S_n . S'
///   dV_r = scale (k~_r S' + P_rr^T dO_r)                     backwards, with an S' of its own
///   R = dO_r V_r^T
///   dq'_t = scale (e_t . A_t + sum over i < t of R_ti k_i exp(g_{i+1} + ... + g_t))      dq_t = dq'_t + scale R_tt k_t
///   dk'_i = scale (f_i . B_i + sum over t > i of R_ti q_t exp(g_{i+1} + ... + g_t))      dk_i = dk'_i + scale R_ii q_i
///   dg_t = W_n + sum over s >= t, in the chunk, of q_s . dq'_s - k_s . dk'_s
///   of which position L has no k . dk', and S_N in W_N nothing of k_L: that pair with the final state passes no gate
///
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16; g, dg, states fp32. In device memory A, B [B, H,
/// 64 N, Dk], S_n [B, H, N, Dk, Dv] and W [B, H, N, Dk] in fp32, and what prepare() leaves.
/// Thread mapping: block (tile, h, b) of a walk has 64 columns of the result, which its 4 warps share. Block (n, h, b)
/// of decays_kernel has chunk n and each of its warps one sub-chunk, with 64 columns at a time, two per lane.
/// Precision: products with the states take q~, k~ and a copy of the state in bf16. R, everything inside a sub-chunk
/// and dg are fp32, and dq' and dk' are rounded after dg has been formed.
/// Work: on tensor cores per position 12 Dk Dv + 34 Dv operations; the 2 Dk Dv of dS are done in the walk for dk and in
/// the walk for dv; in fp32 per element of q 15 / 2 pairs of two multiplications and two multiply-adds each.
/// Bytes: prepare()'s; v and do for each 64 columns of two walks, k~ or q~ once; A, B and S_n written and read once; q,
/// k, g and the gradients once.
/// Bound by: the memory's bandwidth where heads are many; with few heads the time of one chunk after the other.
/// Requires: Dk and Dv multiples of 16, both at most 256; rows aligned to 16 bytes.
/// Weakness: A and B are 16 bytes for each element of q, written and read, and the walks load, wait and compute.
/// Sources: arXiv 2312.06635, section 4.3 and appendix. flash-linear-attention also starts dg anew at each chunk.

#include <cuda_runtime.h>

#include <cmath>

#include "03_gla/gla/prepare.hpp"
#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/between.hpp"
#include "03_gla/gla_backward/requirements.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/decayed_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/walk_sub_chunk.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kColumns = 64;  // of a tile of each kernel

/// What the kernels leave for each other in device memory.
struct Walked {
  Prepared prepared;
  float *a, *b;    ///< [B, H, 64 N, Dk]: A and B
  float* states;   ///< [B, H, N, Dk, Dv]: S after each chunk, after the last one without the last key
  float* restart;  ///< [B, H, N, Dk]: W
};

/// The decays of a chunk's sub-chunks, [kSubChunks, kWidth], from column d of Dk on; 1 for columns beyond Dk.
template <int kWidth>
__device__ __forceinline__ void load_decays(float* decays, const Prepared& prepared, std::int64_t chunk, int d,
                                            int Dk) {
  for (int i = int(threadIdx.x); i < kSubChunks * kWidth; i += kThreads) {
    const int column = d + i % kWidth;
    decays[i] = column < Dk ? load_global(prepared.decays + (chunk * kSubChunks + i / kWidth) * Dk + column) : 1.0f;
  }
}

/// O = X S, then S = S diag(decays) + Y^T Z of one sub-chunk, with rows counted from the chunk's first: S [Dv, 64] has
/// the gates of its columns. As walk_sub_chunk(), whose gates are those of the rows.
template <class Shape>
__device__ __forceinline__ void walk_columns(typename Shape::State& S, float (&O)[2][4],
                                             const typename Shape::KeyTile& X, const typename Shape::KeyTile& Y,
                                             const typename Shape::ValueTile& Z, const float* decays, int first_row) {
  static_assert(Shape::kWarpColumns == 16);
  const int lane = fresh_lane(), first_column = warp_index() * 16;
  std::uint32_t z[4];
  ldmatrix_x4_trans(z, Z.data + Z.unit(lane % 16, first_column + lane / 16 * 8) + first_row * Shape::kDv);
  const float upper = decays[first_column + lane / 4], lower = decays[first_column + lane / 4 + 8];
  const int unit = X.unit(lane % 16, lane / 16 * 8);
#pragma unroll
  for (int d = 0; d < Shape::kDk / 16; ++d) {
    std::uint32_t x[4], y[4];
    ldmatrix_x4(x, X.data + X.advance(unit, 0, d * 16) + first_row * Shape::kDk);
    ldmatrix_x4_trans(y, Y.data + Y.advance(unit, 0, d * 16) + first_row * Shape::kDk);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const auto &s = S[0][2 * d], &next = S[0][2 * d + 1];
      mma_m16n8k16(O[j], x, {pack(s[2 * j], s[2 * j + 1]), pack(next[2 * j], next[2 * j + 1])});
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float(&s)[4] = S[0][2 * d + half];
      s[0] *= upper;
      s[1] *= upper;
      s[2] *= lower;
      s[3] *= lower;
      mma_m16n8k16(s, {z[0], z[2], z[1], z[3]}, {y[2 * half], y[2 * half + 1]});
    }
  }
}

/// The sum of each row of S . other, times a factor. S is the transpose of the user's states, and its columns are their
/// rows.
/// @param other in the layout of the user's states, from the block's first row on
template <class Shape>
__device__ __forceinline__ void multiply_states(typename Shape::State& S, const float* other, int Dv, int columns,
                                                float factor, float* sums) {
  const int lane = fresh_lane(), first_column = warp_index() * 16;
  float rows[2] = {};
  for_each_element<Shape>(S, other, StateStrides(1, Dv), Dv, columns, [&](float& element, const float* address) {
    rows[(&element - &S[0][0][0]) & 2 ? 1 : 0] += element * load_global(address);
  });
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    rows[i] += shuffle_xor(rows[i], 1);
    rows[i] += shuffle_xor(rows[i], 2);
    const int column = first_column + lane / 4 + 8 * i;
    if (lane % 4 == 0 && column < columns) store_global(sums + column, factor * rows[i]);
  }
}

/// A and S_n, or from the last chunk to the first B and W. Grid (tiles of Dk, H, B). Shape::kDk is for Dv.
template <class Shape, bool kFromEnd>
__global__ void __launch_bounds__(kThreads) columns_walk_kernel(Bf16BackwardArguments a, Walked walked) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), N = walked.prepared.N;
  const int first_column = int(blockIdx.x) * kColumns, columns = min(kColumns, a.Dk - first_column);
  const std::int64_t head = std::int64_t(b) * a.H + h;
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const typename Shape::KeyTile X{memory}, Y{X.data + kChunk * Shape::kDk};
  const typename Shape::ValueTile Z{Y.data + kChunk * Shape::kDk};
  auto* decays = reinterpret_cast<float*>(Z.data + kChunk * kColumns);
  const auto &x = kFromEnd ? a.v : a.d_o, &y = kFromEnd ? a.d_o : a.v;
  const __nv_bfloat16* z = kFromEnd ? walked.prepared.q : walked.prepared.k;

  typename Shape::State S;
  const View<const float>& start = kFromEnd ? a.dfinal_state : a.initial_state;
  const float* first = start.data ? start.row(b, h, first_column) : nullptr;
  load_state<Shape>(S, first, StateStrides(1, start.stride_l), a.Dv, columns);
  if (kFromEnd) scale_state<Shape>(S, 1 / a.scale);

  for (int i = 0; i < N; ++i) {
    const int n = kFromEnd ? N - 1 - i : i, t = n * kChunk;
    const std::int64_t chunk = head * N + n;
    load_tile(X, x.row(b, h, t), x.stride_l, a.L - t, a.Dv);
    load_tile(Y, y.row(b, h, t), y.stride_l, a.L - t, a.Dv);
    // S after the last chunk is for dg_L alone: without the last key, whose part of the final state has passed no gate.
    load_tile(Z, z + chunk * kChunk * a.Dk + first_column, a.Dk, kFromEnd ? kChunk : a.L - 1 - t, columns);
    load_decays<kColumns>(decays, walked.prepared, chunk, first_column, a.Dk);
    float* state = walked.states + (chunk * a.Dk + first_column) * a.Dv;
    if (kFromEnd) {
      multiply_states<Shape>(S, state, a.Dv, columns, a.scale, walked.restart + chunk * a.Dk + first_column);
    }
    __syncthreads();
#pragma unroll 1
    for (int step = 0; step < kSubChunks; ++step) {
      const int r = kFromEnd ? kSubChunks - 1 - step : step;
      float O[2][4] = {};
      walk_columns<Shape>(S, O, X, Y, Z, decays + r * kColumns, r * kSubChunk);
      const int lane = fresh_lane(), row = r * kSubChunk + lane / 4, column = warp_index() * 16 + lane % 4 * 2;
      float* out = (kFromEnd ? walked.b : walked.a) + (chunk * kChunk + row) * a.Dk + first_column + column;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if (column + 8 * j >= columns) continue;
        store_global(reinterpret_cast<float2*>(out + 8 * j), make_float2(O[j][0], O[j][1]));
        store_global(reinterpret_cast<float2*>(out + 8 * j + 8 * a.Dk), make_float2(O[j][2], O[j][3]));
      }
    }
    if (!kFromEnd) store_state<Shape>(state, S, StateStrides(1, a.Dv), a.Dv, columns);
    __syncthreads();
  }
}

/// dv and dinitial_state: the operator's walk from the end, with k~ for q~, q~ for k~ and do for v. Grid (tiles of Dv,
/// H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads) values_walk_kernel(Bf16BackwardArguments a, Prepared prepared) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * kColumns, columns = min(kColumns, a.Dv - first_column);
  const std::int64_t head = std::int64_t(b) * a.H + h;
  const DecayedTiles<Shape> tiles(dynamic_shared<unsigned char>());

  typename Shape::State S;
  const float* first = a.dfinal_state.data ? a.dfinal_state.row(b, h, 0) + first_column : nullptr;
  load_state<Shape>(S, first, a.dfinal_state.stride_l, a.Dk, columns);
  scale_state<Shape>(S, 1 / a.scale);

  for (int n = prepared.N - 1; n >= 0; --n) {
    const int t = n * kChunk;
    const std::int64_t chunk = head * prepared.N + n;
    load_tile(tiles.Q, prepared.k + chunk * kChunk * a.Dk, a.Dk, kChunk, a.Dk);
    load_tile(tiles.K, prepared.q + chunk * kChunk * a.Dk, a.Dk, kChunk, a.Dk);
    load_tile(tiles.V, a.d_o.row(b, h, t) + first_column, a.d_o.stride_l, a.L - t, columns);
    load_decays<Shape::kDk>(tiles.decays, prepared, chunk, 0, a.Dk);
    for (int i = int(threadIdx.x); i < kChunk * kSubChunk; i += kThreads) {  // each sub-chunk's scores, transposed
      const int place = i / 256 * 256 + i % kSubChunk * kSubChunk + i / kSubChunk % kSubChunk;
      tiles.scores[place] = load_global(prepared.scores + chunk * kChunk * kSubChunk + i);
    }
    __syncthreads();
#pragma unroll 1
    for (int row = kChunk - kSubChunk; row >= 0; row -= kSubChunk) {
      float O[Shape::kWarpColumns / 8][4] = {};
      walk_sub_chunk<Shape, true>(S, O, tiles, row);
      put_output<Shape>(tiles.V, O, row, a.scale);
    }
    store_warp_columns<Shape>(a.dv.row(b, h, t) + first_column, a.dv.stride_l, a.L - t, columns, tiles.V);
    __syncthreads();
  }
  if (a.dinitial_state.data) {
    scale_state<Shape>(S, a.scale);
    store_state<Shape>(a.dinitial_state.row(b, h, 0) + first_column, S, a.dinitial_state.stride_l, a.Dk, columns);
  }
}

/// Two elements of a row, zeros if it does not exist.
__device__ __forceinline__ std::uint32_t load_two(const View<const __nv_bfloat16>& x, int b, int h, int t, int column,
                                                  bool is_there) {
  return is_there ? load_global(reinterpret_cast<const std::uint32_t*>(x.row(b, h, t) + column)) : 0;
}

/// R = dO V^T of a warp's sub-chunk, from device memory to R [16, 16].
__device__ __forceinline__ void own_products(const Bf16BackwardArguments& a, int b, int h, int first, float* R) {
  const int lane = int(lane_index()), row = lane / 4, pair = lane % 4 * 2;
  float sums[2][4] = {};
  for (int j = 0; j < a.Dv; j += 16) {
    std::uint32_t x[4], y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = first + row + i % 2 * 8, column = j + pair + i / 2 * 8;
      x[i] = load_two(a.d_o, b, h, t, column, t < a.L);
      y[i] = load_two(a.v, b, h, t, column, t < a.L);
    }
    mma_m16n8k16(sums[0], x, {y[0], y[2]});
    mma_m16n8k16(sums[1], x, {y[1], y[3]});
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 4; ++i) R[(row + i / 2 * 8) * kSubChunk + half * 8 + pair + i % 2] = sums[half][i];
  }
}

/// dq, dk and dg of a chunk. Grid (N, H, B).
__global__ void __launch_bounds__(kThreads) decays_kernel(Bf16BackwardArguments a, Walked walked) {
  __shared__ float products[kWarps][kSubChunk * kSubChunk];
  __shared__ float2 totals[kWarps][32];
  const int b = int(blockIdx.z), h = int(blockIdx.y), lane = int(lane_index()), warp = int(threadIdx.x) / 32;
  const std::int64_t chunk = (std::int64_t(b) * a.H + h) * walked.prepared.N + int(blockIdx.x);
  const int first = int(blockIdx.x) * kChunk + warp * kSubChunk, rows = min(a.L - first, kSubChunk);
  const float* R = products[warp];
  own_products(a, b, h, first, products[warp]);
  __syncwarp();

#pragma unroll 1
  for (int slice = 0; slice < a.Dk; slice += kColumns) {
    const int d = slice + lane * 2;
    const bool is_there = d < a.Dk;
    const std::int64_t place = (chunk * kChunk + warp * kSubChunk) * a.Dk + d;
    float k[kSubChunk][2], decays[kSubChunk][2], dk[kSubChunk][2], dg[kSubChunk][2];
    float from_start[2] = {1, 1};
#pragma unroll
    for (int t = 0; t < kSubChunk; ++t) {
      const bool exists = is_there && t < rows;
      float q[2], gates[2] = {1, 1}, dq[2] = {}, full[2];
      convert(q, load_two(a.q, b, h, first + t, d, exists));
      convert(k[t], load_two(a.k, b, h, first + t, d, exists));
      if (exists) convert(gates, load_global(reinterpret_cast<const float2*>(a.g.row(b, h, first + t) + d)));
      if (exists) convert(full, load_global(reinterpret_cast<const float2*>(walked.a + place + t * a.Dk)));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (exists) gates[e] = gate(gates[e]);
        from_start[e] *= gates[e];
        decays[t][e] = 1;
        dk[t][e] = 0;
#pragma unroll
        for (int i = 0; i < t; ++i) {
          decays[i][e] *= gates[e];
          const float x = R[t * kSubChunk + i] * decays[i][e];
          dq[e] += x * k[i][e];
          dk[i][e] += x * q[e];
        }
        if (exists) dq[e] = a.scale * (dq[e] + from_start[e] * full[e]);
        dg[t][e] = q[e] * dq[e];
        dq[e] += a.scale * R[t * kSubChunk + t] * k[t][e];
      }
      if (exists) store_global(reinterpret_cast<std::uint32_t*>(a.dq.row(b, h, first + t) + d), packed_row(dq));
    }

    float total[2] = {};
#pragma unroll
    for (int t = kSubChunk - 1; t >= 0; --t) {
      if (!is_there || t >= rows) continue;
      float q[2], full[2], sums[2];
      convert(q, load_two(a.q, b, h, first + t, d, true));
      convert(full, load_global(reinterpret_cast<const float2*>(walked.b + place + t * a.Dk)));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float x = a.scale * (dk[t][e] + decays[t][e] * full[e]);
        total[e] += dg[t][e] - (first + t < a.L - 1 ? k[t][e] * x : 0.0f);
        dg[t][e] = total[e];
        sums[e] = x + a.scale * R[t * kSubChunk + t] * q[e];
      }
      store_global(reinterpret_cast<std::uint32_t*>(a.dk.row(b, h, first + t) + d), packed_row(sums));
    }
    totals[warp][lane] = float_row(total);
    __syncthreads();
    if (is_there) {
      float after[2];
      convert(after, load_global(reinterpret_cast<const float2*>(walked.restart + chunk * a.Dk + d)));
      for (int w = kWarps - 1; w > warp; --w) after[0] += totals[w][lane].x, after[1] += totals[w][lane].y;
#pragma unroll
      for (int t = 0; t < kSubChunk; ++t) {
        float* row = a.dg.row(b, h, first + t) + d;
        if (t < rows) store_global(reinterpret_cast<float2*>(row), {dg[t][0] + after[0], dg[t][1] + after[1]});
      }
    }
    __syncthreads();
  }
}

/// Elements of a tensor of chunks with so many for each.
std::size_t elements(const Bf16BackwardArguments& a, int of_chunk) {
  return std::size_t(a.B) * std::size_t(a.H) * std::size_t(ceil_div(a.L, kChunk)) * std::size_t(of_chunk);
}

}  // namespace

void subchunk_walks_backward(const Bf16BackwardArguments& a) {
  const std::size_t rows = elements(a, kChunk * a.Dk), states = elements(a, a.Dk * a.Dv);
  auto* memory = workspace<float>("gla --backward", 2 * rows + states + elements(a, a.Dk));
  float* after_rows = memory + 2 * rows;
  const Walked walked{prepare(forward_of(a)), memory, memory + rows, after_rows, after_rows + states};
  const auto grid = [&](int columns) {
    return dim3(unsigned(ceil_div(columns, kColumns)), unsigned(a.H), unsigned(a.B));
  };
  select_shape(a.Dv, [&]<class Shape>(Shape) {
    constexpr std::size_t kBytes =
        kChunk * (2 * Shape::kDk + kColumns) * sizeof(__nv_bfloat16) + kSubChunks * kColumns * sizeof(float);
    launch(columns_walk_kernel<Shape, false>, {grid(a.Dk), kThreads, kBytes}, a, walked);
    launch(columns_walk_kernel<Shape, true>, {grid(a.Dk), kThreads, kBytes}, a, walked);
  });
  select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(values_walk_kernel<Shape>, {grid(a.Dv), kThreads, DecayedTiles<Shape>::kBytes}, a, walked.prepared);
  });
  launch(decays_kernel, {dim3(unsigned(walked.prepared.N), unsigned(a.H), unsigned(a.B)), kThreads}, a, walked);
}

std::int64_t subchunk_walks_backward_memory(const Bf16BackwardArguments& a) {
  const std::size_t floats = elements(a, 2 * kChunk * a.Dk) + elements(a, a.Dk * a.Dv) + elements(a, a.Dk);
  return prepared_memory(forward_of(a)) + std::int64_t(floats * sizeof(float));
}

}  // namespace tutorial::gla
