/// @file
/// Stage 5, `mma_products`: the walk of `fused` with its products on tensor cores.
///
/// Idea: a chunk's work is four matrix products, and a multiprocessor has units that do nothing else, the tensor cores.
/// One `mma` instruction multiplies a 16 x 16 by a 16 x 8 matrix of bf16 and adds in fp32, at more than ten times the
/// rate of fp32 multiply-adds. No lane of the warp sees a whole matrix: what a lane holds of one is its fragment
/// (common/device/mma.cuh draws it). `ldmatrix` brings fragments from shared memory, as stored or transposed. So one
/// function, multiply(), computes all four products, which differ only in how their factors are stored:
///
///     product   A, left factor            B, right factor           a warp's part of the result
///     Q K^T     Q[t][d], rows of k        K[i][d], rows of k        16 rows t, all 64 columns i
///     Q S       Q[t][d], rows of k        S[d][j], rows of n        all 64 rows t, 16 columns j
///     P V       P[t][i], rows of k        V[i][j], rows of n        all 64 rows t, 16 columns j
///     K^T V     K[i][d], rows of m        V[i][j], rows of n        all rows d, 16 columns j
///
/// (m and n count rows and columns of a product, k what it sums over.)
/// Grows out of: 4_fused.cu
/// Improves on: `fused` is bound by fp32 arithmetic and by the traffic of its operands through shared memory.
/// Unchanged: one kernel. Each block has one tile of Dv of one head and walks the chunks, with S in shared memory.
/// Equation:
///
///   P = (Q_n K_n^T) . M      O_n = scale (Q_n S + P V_n)      S += K_n^T V_n       for each chunk n
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16, states [B, H, Dk, Dv] fp32, in device memory. In shared memory
/// Q, K [64, Dk], V, P [64, 64] bf16, S [Dk, 64] fp32 and a copy of S in bf16, which the product Q S reads.
/// Thread mapping: block (x, h, b) takes the 64 columns from 64 x on of v, o and S of head h of batch entry b. Its 4 warps
/// divide the rows of the scores among them, and the columns of all other results. They exchange the scores through P.
/// Rows past L and columns past Dk and Dv are loaded as zeros and change nothing.
/// Resources: 106 KB of shared memory at Dk = 128, two blocks per multiprocessor.
/// Precision: P and, for Q S, the copy of S are rounded to bf16, with a relative error of up to 2^-8 each. S itself and
/// all sums stay in fp32.
/// Work: per position 4 Dk Dv operations for the state and 2 C (Dk ceil(Dv / 64) + Dv) for the scores, also above the
/// diagonal.
/// Bytes: each input once (q and k once for each tile of Dv), each output once.
/// Bound by: latency, as the block loads a chunk, waits, and computes; and the traffic of shared memory. For each chunk
/// every element of S is read and written in fp32, and its copy is written and read.
/// Requires: Dk and Dv multiples of 16, Dk <= 128, Dv <= 512; rows aligned to 16 bytes.
/// Weakness: S passes through shared memory, although no warp reads another warp's columns of it. `register_state` keeps
/// them in registers.
/// Sources: PTX ISA, "mma.m16n8k16" and "ldmatrix"; arXiv 2312.06635, algorithm 1 (its version that materialises no
/// states).

#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention/padded_tile.cuh"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"
#include "common/device/pack.cuh"
#include "common/tile/load_tile_sync.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kColumns = 64;  // of Dv, per block
constexpr int kWarpColumns = kColumns / kWarps;
constexpr int kStateStride = kColumns + 8;  // of S in fp32: padded, as its rows are written at once

enum class Stored { kRowsOfK, kRowsOfMn };

/// D += A B for kTiles x kPairs results of mma, by one warp; the sums run over kDepth.
/// @tparam kA,kB how the factors are stored: rows of k, or A as rows of m and B as rows of n
template <Stored kA, Stored kB, int kDepth, int kTiles, int kPairs, class Left, class Right>
__device__ __forceinline__ void multiply(float (&D)[kTiles][kPairs][4], const Left& A, const Right& B) {
  const int lane = int(lane_index());
#pragma unroll
  for (int k = 0; k < kDepth; k += 16) {
    std::uint32_t b[kPairs][2];
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      if (kB == Stored::kRowsOfK) ldmatrix_x2(b[n], B.at(n * 8 + lane % 8, k + lane / 8 % 2 * 8));
      if (kB == Stored::kRowsOfMn) ldmatrix_x2_trans(b[n], B.at(k + lane % 16, n * 8));
    }
#pragma unroll
    for (int m = 0; m < kTiles; ++m) {
      std::uint32_t a[4];
      if (kA == Stored::kRowsOfK) ldmatrix_x4(a, A.at(m * 16 + lane % 16, k + lane / 16 * 8));
      if (kA == Stored::kRowsOfMn) ldmatrix_x4_trans(a, A.at(k + lane / 16 * 8 + lane % 8, m * 16 + lane / 8 % 2 * 8));
#pragma unroll
      for (int n = 0; n < kPairs; ++n) mma_m16n8k16(D[m][n], a, b[n]);
    }
  }
}

/// Calls f(row, column, pair) for each pair of neighbouring numbers that the lane holds of D.
template <int kTiles, int kPairs, class F>
__device__ __forceinline__ void for_each_pair(const float (&D)[kTiles][kPairs][4], F f) {
  const int lane = int(lane_index());
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      f(m * 16 + lane / 4, n * 8 + lane % 4 * 2, float2{D[m][n][0], D[m][n][1]});
      f(m * 16 + lane / 4 + 8, n * 8 + lane % 4 * 2, float2{D[m][n][2], D[m][n][3]});
    }
  }
}

__device__ __forceinline__ void store_pair(__nv_bfloat16* address, float first, float second) {
  *reinterpret_cast<std::uint32_t*>(address) = pack(first, second);
}

template <int kDk>
constexpr int kElements = 2 * PaddedTile<kDk>::elements(kChunk) + PaddedTile<64>::elements(2 * kChunk + kDk);

/// Grid (tiles of Dv, H, B).
template <int kDk>
__global__ void __launch_bounds__(kThreads, 2) mma_products_kernel(Bf16Arguments a) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), warp = int(threadIdx.x) / 32;
  const int first_column = int(blockIdx.x) * kColumns, columns = min(kColumns, a.Dv - first_column);
  const PaddedTile<kDk> Q{dynamic_shared<__nv_bfloat16>()}, K = Q.from(kChunk, 0);
  const PaddedTile<64> V{K.at(kChunk, 0)}, P = V.from(kChunk, 0), copy = P.from(kChunk, 0);
  float* S = reinterpret_cast<float*>(copy.at(kDk, 0));
  const int column = warp * kWarpColumns;  // the warp's first

  const auto put = [&](int d, int j, float2 s) {
    *reinterpret_cast<float2*>(&S[d * kStateStride + j]) = s;
    store_pair(copy.at(d, j), s.x, s.y);
  };
  for (int i = int(threadIdx.x); i < kDk * kColumns / 2; i += kThreads) {
    const int d = i / (kColumns / 2), j = i % (kColumns / 2) * 2;
    const bool given = a.initial_state.data && d < a.Dk && j < columns;
    const float* s = given ? a.initial_state.row(b, h, d) + first_column + j : nullptr;
    put(d, j, given ? float2{load_global(&s[0]), load_global(&s[1])} : float2{});
  }
  for (int t = 0; t < a.L; t += kChunk) {
    const int rows = a.L - t;
    load_tile(Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_tile(K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_tile(V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
    __syncthreads();
    float scores[1][kChunk / 8][4] = {}, O[kChunk / 16][kWarpColumns / 8][4] = {};
    multiply<Stored::kRowsOfK, Stored::kRowsOfK, kDk>(scores, Q.from(warp * 16, 0), K);
    for_each_pair(scores, [&](int row, int i, float2 p) {
      const int position = warp * 16 + row;
      store_pair(P.at(position, i), i <= position ? p.x : 0.0f, i + 1 <= position ? p.y : 0.0f);
    });
    multiply<Stored::kRowsOfK, Stored::kRowsOfMn, kDk>(O, Q, copy.from(0, column));
    __syncthreads();
    multiply<Stored::kRowsOfK, Stored::kRowsOfMn, kChunk>(O, P, V.from(0, column));
    for_each_pair(O, [&](int row, int j, float2 o) {
      auto* address = reinterpret_cast<std::uint32_t*>(a.o.row(b, h, t + row) + first_column + column + j);
      if (row < rows && column + j < columns) store_global(address, pack(a.scale * o.x, a.scale * o.y));
    });
    float X[kDk / 16][kWarpColumns / 8][4] = {};
    multiply<Stored::kRowsOfMn, Stored::kRowsOfMn, kChunk>(X, K, V.from(0, column));
    for_each_pair(X, [&](int d, int j, float2 x) {
      const float2 s = *reinterpret_cast<const float2*>(&S[d * kStateStride + column + j]);
      put(d, column + j, {s.x + x.x, s.y + x.y});
    });
    __syncthreads();
  }
  if (a.final_state.data == nullptr) return;
  for (int i = int(threadIdx.x); i < a.Dk * columns; i += kThreads) {
    const int d = i / columns, j = i % columns;
    store_global(&a.final_state.row(b, h, d)[first_column + j], S[d * kStateStride + j]);
  }
}

template <int kDk>
void start(const Bf16Arguments& a) {
  const dim3 grid(unsigned(ceil_div(a.Dv, kColumns)), unsigned(a.H), unsigned(a.B));
  const std::size_t bytes = kElements<kDk> * sizeof(__nv_bfloat16) + kDk * kStateStride * sizeof(float);
  launch(mma_products_kernel<kDk>, {grid, kThreads, bytes}, a);
}

}  // namespace

void mma_products(const Bf16Arguments& a) {
  a.Dk <= 64 ? start<64>(a) : start<128>(a);
}

}  // namespace tutorial::linear_attention
