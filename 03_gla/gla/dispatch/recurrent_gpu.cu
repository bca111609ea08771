/// @file
/// `recurrent_gpu`: the recurrence on the GPU, with the state in registers.
///
/// Idea: column j of the state needs only column j of v. So a block keeps a tile of columns in registers for the whole
/// sequence, and streams q, k, v and the gates past them. A gate is a number between 0 and 1, which is computed once
/// and then only multiplied with. So nothing can overflow, and no sum of g is ever formed.
/// Improves on: `recurrent` has one CPU thread per head. `chunk_gpu` has four launches, and computes more.
/// Unchanged: the recurrence, step by step. All sums are in fp32.
/// Equation:
///
///     S_d = exp(g_td) S_d + k_td v_t          row d of the block's 32 columns
///     o_t = scale sum_d q_td S_d
///
/// Shapes: q, k, g [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; all fp32 in device memory.
/// Thread mapping: block (b, h, tile) has 32 columns and 128 threads. Eight threads share two columns, and each of them
/// has Dk / 8 of the rows, in groups of four neighbouring ones. So the lanes of a warp read 8 neighbouring float4 from
/// shared memory, each of them for 4 lanes, and 3 shuffles add up the 8 parts of an output. Dk is rounded up to 32, 64,
/// 128 or 256, so that the compiler knows the length of every loop over registers. Gates are computed on the way: a
/// block loads g, and what stays in shared memory is 2^(g / ln 2) (base2.cuh). Otherwise each thread that reads a gate
/// would compute it again, 16 times in all. Double buffering as in chapter 01's `lmha`: while the block computes 8
/// steps, asynchronous copies fetch the next 8 into a second buffer; one barrier swaps the two.
/// Resources: Dk / 4 registers for the state; 26 KB of shared memory at Dk = 128.
/// Work: per position Dk Dv multiplications and 2 Dk Dv multiply-adds, and Dk exponentials per tile of columns.
/// Bytes: v, o and the states once; q, k and g once per tile of columns, after the first from the second-level cache.
/// Bound by: the latency of L dependent steps. Each step waits for shared memory and for its shuffles.
/// Requires: Dk <= 256.
/// Weakness: the positions of a head run one after the other, and with few heads multiprocessors are idle.
/// Sources: chapter 01's `lmha`; arXiv 2312.06635, section 4.1, "recurrent form".

#include <cuda_runtime.h>

#include "03_gla/gla.hpp"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/float_tile.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kBlock = 128;                    // threads
constexpr int kShare = 8;                      // threads of a pair of columns
constexpr int kColumns = 2 * kBlock / kShare;  // of a block

/// Elements of a row that the threads of a pair of columns read at once: four neighbouring ones each.
constexpr int kTurn = 4 * kShare;

/// Grid (tiles of the columns) (B H): the blocks of a head are neighbours.
/// @tparam kDk Dk rounded up
template <int kDk>
__global__ void __launch_bounds__(kBlock, 4) recurrent_kernel(FloatArguments a) {
  constexpr int kSteps = kDk > 128 ? 4 : 8;      // of a tile
  constexpr int kLoads = kSteps * kDk / kBlock;  // of q per thread; as many of k and of g
  constexpr int kLoadsOfV = kSteps * kColumns / kBlock;
  __shared__ Floats<4> q_tile[2][kSteps][kDk / 4], k_tile[2][kSteps][kDk / 4], gate_tile[2][kSteps][kDk / 4];
  __shared__ Floats<2> v_tile[2][kSteps][kColumns / 2];

  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int head = int(blockIdx.x) / tiles, b = head / a.H, h = head % a.H;
  const int first = int(blockIdx.x) % tiles * kColumns;
  const int thread = int(threadIdx.x), part = thread % kShare, pair = thread / kShare;
  const int j = first + 2 * pair;
  const auto row = [&](int r) { return r / 4 * kTurn + part * 4 + r % 4; };  // the row of the state in S[r]

  // Starts the copies of a tile; g lies where its gates will be. Past the end k and g are zeros: the state stays as it
  // is. Not unrolled: no thread waits for a copy, and the addresses of all copies would take more registers than the
  // state.
  const auto load_tile = [&](int t0, int buffer) {
#pragma unroll 1
    for (int n = 0; n < kLoads; ++n) {
      const int index = thread + n * kBlock, step = index / kDk, t = t0 + step, d = index % kDk;
      const bool is_there = t < a.L && d < a.Dk;
      cp_async<4>(&q_tile[buffer][step][d / 4].of[d % 4], a.q.row(b, h, t) + d, is_there);
      cp_async<4>(&k_tile[buffer][step][d / 4].of[d % 4], a.k.row(b, h, t) + d, is_there);
      cp_async<4>(&gate_tile[buffer][step][d / 4].of[d % 4], a.g.row(b, h, t) + d, is_there);
    }
#pragma unroll 1
    for (int n = 0; n < kLoadsOfV; ++n) {
      const int index = thread + n * kBlock, step = index / kColumns, t = t0 + step, column = index % kColumns;
      cp_async<4>(&v_tile[buffer][step][column / 2].of[column % 2], a.v.row(b, h, t) + first + column,
                  t < a.L && first + column < a.Dv);
    }
    cp_async_commit();
  };
  // Waits for a tile and turns g into gates. Each thread does so with the elements that it has copied.
  const auto finish_tile = [&](int buffer) {
    cp_async_wait<0>();
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      const int index = thread + n * kBlock, d = index % kDk;
      float& gate = gate_tile[buffer][index / kDk][d / 4].of[d % 4];
      gate = exp2f(base2(gate));
    }
  };

  float S[kDk / kShare][2];
#pragma unroll
  for (int r = 0; r < kDk / kShare; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const bool given = a.initial_state.data && row(r) < a.Dk && j + c < a.Dv;
      S[r][c] = given ? load_global(&a.initial_state.row(b, h, row(r))[j + c]) : 0.0f;
    }
  }
  load_tile(0, 0);
  finish_tile(0);
  __syncthreads();
  for (int t0 = 0, buffer = 0; t0 < a.L; t0 += kSteps, buffer ^= 1) {
    load_tile(t0 + kSteps, buffer ^ 1);
#pragma unroll 2
    for (int step = 0; step < kSteps; ++step) {
      const Floats<2> v = v_tile[buffer][step][pair];
      float o[2] = {};
#pragma unroll
      for (int r = 0; r < kDk / kShare; r += 4) {
        const int turn = r / 4 * kShare + part;
        const Floats<4> gate = gate_tile[buffer][step][turn];
        const Floats<4> k = k_tile[buffer][step][turn];
        const Floats<4> q = q_tile[buffer][step][turn];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            S[r + e][c] = gate.of[e] * S[r + e][c] + k.of[e] * v.of[c];
            o[c] += q.of[e] * S[r + e][c];
          }
        }
      }
      o[0] = warp_sum<kShare>(o[0]);
      o[1] = warp_sum<kShare>(o[1]);
      if (part < 2 && t0 + step < a.L && j + part < a.Dv) {
        store_global(&a.o.row(b, h, t0 + step)[j + part], a.scale * (part == 0 ? o[0] : o[1]));
      }
    }
    finish_tile(buffer ^ 1);
    __syncthreads();
  }
  if (a.final_state.data == nullptr) return;
#pragma unroll
  for (int r = 0; r < kDk / kShare; ++r) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (row(r) < a.Dk && j + c < a.Dv) store_global(&a.final_state.row(b, h, row(r))[j + c], S[r][c]);
    }
  }
}

}  // namespace

void recurrent_gpu(const FloatArguments& a) {
  const auto kernel = a.Dk <= 32    ? recurrent_kernel<32>
                      : a.Dk <= 64  ? recurrent_kernel<64>
                      : a.Dk <= 128 ? recurrent_kernel<128>
                                    : recurrent_kernel<256>;
  launch(kernel, {unsigned(a.B * a.H * ceil_div(a.Dv, kColumns)), kBlock}, a);
}

}  // namespace tutorial::gla
