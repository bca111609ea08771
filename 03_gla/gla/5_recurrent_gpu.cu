/// @file
/// Stage 5, `recurrent_gpu`: stage 1 on the GPU, the state in registers.
///
/// Idea: columns of the state never meet, so a block takes a tile of them and keeps it in registers for the whole
/// sequence. What flows is q, k, v and the gates, and a gate is a number between 0 and 1 that is made once and
/// multiplied with: nothing can overflow, no sum of gates is ever formed.
/// Mends: stage 4 has a thread a head. Same: the recurrence, step by step; its sums in fp32.
///
///   S_d = 2^(g_td / ln 2) S_d + k_td v_t          row d of the block's 32 columns
///   o_t = scale sum_d q_td S_d
///
/// Shapes: q, k, g [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; all fp32 in device memory.
/// Who does what: block (b, h, tile) has 32 columns and 128 threads: 8 threads share a pair of columns, and have Dk / 8
/// rows of it each, in turns of four. So the lanes of a warp ask shared memory for 8 neighbouring float4, each for 4
/// lanes at once, and the 8 parts of an output are added up by 3 shuffles. Dk is rounded up to 32, 64, 128 or 256, so
/// that loops over registers have lengths that the compiler knows.
/// Gates are made as they pass: a block loads g, and what it puts into shared memory is 2^(g / ln 2). Each thread that
/// reads it would else compute it again, 16 times in all.
/// Double buffering as in chapter 01's `lmha`: while a tile of 8 steps is computed, the next one is on its way, by
/// asynchronous copies into the other buffer; one barrier swaps the two.
/// Resources: Dk / 4 registers for the state; 26 KB of shared memory at Dk = 128.
/// Work: Dk Dv multiplications and 2 Dk Dv multiply-adds a position, Dk exponentials for each tile of columns. Bytes:
/// v, o and the states once; q, k and g once for each tile of columns, from the second-level cache after the first.
/// Limit: L steps that follow one another, each of which waits for shared memory and for its shuffles.
/// Needs: Dk <= 256.
/// Weakness: steps in line, and with few heads idle multiprocessors. Stage 6 does the chunks all at once.
/// Source: chapter 01's `lmha`; arXiv 2312.06635, section 4.1, "recurrent form".

#include <cuda_runtime.h>

#include <climits>

#include "02_chunkwise/float_tile.cuh"
#include "03_gla/gla.hpp"
#include "03_gla/gla/base2.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"

namespace tutorial::gla {
namespace {

using linear_attention::Floats;

constexpr int kThreads = 128;
constexpr int kShare = 8;                        // threads of a pair of columns
constexpr int kColumns = 2 * kThreads / kShare;  // of a block
constexpr int kMaxKeyDim = 256;

/// Four neighbouring numbers for each of the threads that share a column: what they read at once.
constexpr int kTurn = 4 * kShare;

/// Grid (tiles of the columns) (B H): the blocks of a head are neighbours.
/// @tparam kDk Dk rounded up
template <int kDk>
__global__ void __launch_bounds__(kThreads, 4) recurrent_kernel(FloatArguments a) {
  constexpr int kSteps = kDk > 128 ? 4 : 8;        // of a tile
  constexpr int kLoads = kSteps * kDk / kThreads;  // of q a thread, of k and g as many
  constexpr int kLoadsOfV = kSteps * kColumns / kThreads;
  __shared__ Floats<4> q_tile[2][kSteps][kDk / 4], k_tile[2][kSteps][kDk / 4], gate_tile[2][kSteps][kDk / 4];
  __shared__ Floats<2> v_tile[2][kSteps][kColumns / 2];

  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int head = int(blockIdx.x) / tiles, b = head / a.H, h = head % a.H;
  const int first = int(blockIdx.x) % tiles * kColumns;
  const int thread = int(threadIdx.x), part = thread % kShare, pair = thread / kShare;
  const int j = first + 2 * pair;
  const auto row = [&](int r) { return r / 4 * kTurn + part * 4 + r % 4; };  // the row of the state in S[r]

  // Starts the copies of a tile. Past the end keys are zeros and gates exp(0): the state stays as it is. Not unrolled:
  // a copy keeps no thread waiting, and the addresses of all of them would take more registers than the state.
  const auto load_tile = [&](int t0, int buffer) {
#pragma unroll 1
    for (int n = 0; n < kLoads; ++n) {
      const int index = thread + n * kThreads, step = index / kDk, t = t0 + step, d = index % kDk;
      const bool is_there = t < a.L && d < a.Dk;
      cp_async<4>(&q_tile[buffer][step][d / 4].of[d % 4], a.q.row(b, h, t) + d, is_there);
      cp_async<4>(&k_tile[buffer][step][d / 4].of[d % 4], a.k.row(b, h, t) + d, is_there);
      cp_async<4>(&gate_tile[buffer][step][d / 4].of[d % 4], a.g.row(b, h, t) + d, is_there);
    }
#pragma unroll 1
    for (int n = 0; n < kLoadsOfV; ++n) {
      const int index = thread + n * kThreads, step = index / kColumns, t = t0 + step, column = index % kColumns;
      cp_async<4>(&v_tile[buffer][step][column / 2].of[column % 2], a.v.row(b, h, t) + first + column,
                  t < a.L && first + column < a.Dv);
    }
    cp_async_commit();
  };
  // Waits for a tile and makes gates of their logarithms; each thread of those that it has copied.
  const auto finish_tile = [&](int buffer) {
    cp_async_wait<0>();
#pragma unroll
    for (int n = 0; n < kLoads; ++n) {
      const int index = thread + n * kThreads, d = index % kDk;
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

std::int64_t block_count(const FloatArguments& a) {
  return std::int64_t(a.B) * a.H * ((a.Dv - 1) / kColumns + 1);
}

}  // namespace

void recurrent_gpu(const FloatArguments& a) {
  const auto kernel = a.Dk <= 32    ? recurrent_kernel<32>
                      : a.Dk <= 64  ? recurrent_kernel<64>
                      : a.Dk <= 128 ? recurrent_kernel<128>
                                    : recurrent_kernel<256>;
  launch(kernel, {unsigned(block_count(a)), kThreads}, a);
}

std::string recurrent_gpu_limits(const FloatArguments& a) {
  if (a.Dk > kMaxKeyDim) return "Dk > 256: the state's columns would not fit into the registers of 8 threads";
  if (block_count(a) > INT_MAX) return "B H > 2^31 - 1 tiles of 32 columns: the grid";
  if (a.L > INT_MAX - 16) return "L > 2^31 - 17: positions are counted in int";
  return "";
}

std::int64_t recurrent_gpu_memory(const FloatArguments&) {
  return 0;
}

}  // namespace tutorial::gla
