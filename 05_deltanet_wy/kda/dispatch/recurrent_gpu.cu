/// @file
/// `recurrent_gpu`: the recurrence on the GPU, with the state in registers.
///
/// Idea: the pass over the state that computes k_t S' and q_t S' also turns S into S' = diag(exp(g_t)) S. So the gates
/// cost one multiplication per element of the state, and no pass of their own. A gate is needed by all threads that
/// hold its row of the state; it is computed once, when g arrives in shared memory, by the thread that has copied it.
/// Improves on: `recurrent` and `chunkwise` use one CPU thread per head.
/// Unchanged: delta_rule's kernel of this name: the sums of a step read the old state, decayed here, side by side.
/// Equation:
///
///     S'    = diag(exp(g_t)) S                      with k_t S', q_t S' and q_t . k_t from one pass over S
///     delta = beta_t (v_t - k_t S')                 [32 columns]
///     o_t   = scale (q_t S' + (q_t . k_t) delta)
///     S     = S' + k_t^T delta
///
/// With `normalize_keys`, k_t . k_t is a fourth sum. What was computed with k_t is divided by its root.
///
/// Shapes: q, k, g [B, H, L, Dk]; v, o [B, H, L, Dv]; beta [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; all fp32 in
/// device memory.
/// Thread mapping: block (b, h, tile) has 32 columns and 128 threads: 8 threads share a pair of columns, as in
/// delta_rule. While the block computes a tile of 8 steps, asynchronous copies bring the next tile into the other
/// buffer; then each thread turns the g that it has copied into gates, and one barrier swaps the two.
/// Synchronization: one barrier per tile.
/// Resources: Dk / 4 registers for the state; 26 KB of shared memory at Dk = 128.
/// Work: delta_rule's, and per position Dk Dv multiplications with gates; the exponentials once per tile of columns.
/// Bytes: v, o and the states once; q, k, g and beta once per tile of columns, after the first tile from the
/// second-level cache.
/// Bound by: the latency of L dependent steps.
/// Requires: Dk <= 256; keys as in `recurrent`; any g <= 0. There are no sums of g, so no gate is too small.
/// Weakness: its steps run one after the other, on units for fp32. `tensor_core` computes the steps of a chunk at once.
/// Sources: delta_rule's stage of this name; chapter 03's for the gates in shared memory; arXiv 2510.26692, equation 1.

#include <cuda_runtime.h>

#include "05_deltanet_wy/kda.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/base2.cuh"
#include "common/tile/float_tile.cuh"

namespace tutorial::kda {
namespace {

using tile::Floats;

constexpr int kThreads = 128;
constexpr int kShare = 8;                        // threads that share a pair of columns
constexpr int kColumns = 2 * kThreads / kShare;  // of a block

/// Numbers that the threads which share a column read at once: four neighbouring ones per thread.
constexpr int kTurn = 4 * kShare;

/// Grid: (tiles of columns) times (B H) blocks. The blocks of a head are neighbours.
/// @tparam kDk Dk rounded up
/// @tparam kNormalize a.normalize_keys
template <int kDk, bool kNormalize>
__global__ void __launch_bounds__(kThreads, 4) recurrent_kernel(FloatArguments a) {
  constexpr int kSteps = kDk > 128 ? 4 : 8;        // of a tile
  constexpr int kLoads = kSteps * kDk / kThreads;  // of q per thread, and of k as many
  constexpr int kLoadsOfV = kSteps * kColumns / kThreads;
  __shared__ Floats<4> q_tile[2][kSteps][kDk / 4], k_tile[2][kSteps][kDk / 4], gate_tile[2][kSteps][kDk / 4];
  __shared__ Floats<2> v_tile[2][kSteps][kColumns / 2];
  __shared__ float beta_tile[2][kSteps];

  const int tiles = (a.Dv - 1) / kColumns + 1;
  const int head = int(blockIdx.x) / tiles, b = head / a.H, h = head % a.H;
  const int first = int(blockIdx.x) % tiles * kColumns;
  const int thread = int(threadIdx.x), part = thread % kShare, pair = thread / kShare;
  const int j = first + 2 * pair;
  const auto row = [&](int r) { return r / 4 * kTurn + part * 4 + r % 4; };  // the row of the state in S[r]

  // Starts the copies of a tile; g lies where its gates will be. Positions past the end are zeros, which leave the
  // state as it is. The loops are not
  // unrolled: no thread waits for a copy, and the addresses of all copies would take more registers than the state.
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
    if (thread < kSteps) cp_async<4>(&beta_tile[buffer][thread], a.beta.row(b, h, t0 + thread), t0 + thread < a.L);
    cp_async_commit();
  };
  // Waits for a tile and turns g into gates. Each thread does so with the elements that it has copied.
  const auto finish_tile = [&](int buffer) {
    cp_async_wait<0>();
#pragma unroll 1
    for (int n = 0; n < kLoads; ++n) {
      const int index = thread + n * kThreads, d = index % kDk;
      float& gate = gate_tile[buffer][index / kDk][d / 4].of[d % 4];
      gate = exp2f(tile::base2(gate));
    }
    __syncthreads();
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
  for (int t0 = 0, buffer = 0; t0 < a.L; t0 += kSteps, buffer ^= 1) {
    load_tile(t0 + kSteps, buffer ^ 1);
#pragma unroll 1
    for (int step = 0; step < kSteps; ++step) {
      float kS[2] = {}, qS[2] = {}, qk = 0, kk = 0;
#pragma unroll
      for (int r = 0; r < kDk / kShare; r += 4) {
        const Floats<4> k = k_tile[buffer][step][r / 4 * kShare + part];
        const Floats<4> q = q_tile[buffer][step][r / 4 * kShare + part];
        const Floats<4> gate = gate_tile[buffer][step][r / 4 * kShare + part];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            S[r + e][c] *= gate.of[e];
            kS[c] += k.of[e] * S[r + e][c];
            qS[c] += q.of[e] * S[r + e][c];
          }
          qk += q.of[e] * k.of[e];
          if constexpr (kNormalize) kk += k.of[e] * k.of[e];
        }
      }
      qk = warp_sum<kShare>(qk);
      float factor = 1;  // of k
      if constexpr (kNormalize) factor = 1 / sqrtf(warp_sum<kShare>(kk) + kKeyEps);
      const Floats<2> v = v_tile[buffer][step][pair];
      float delta[2];  // times the factor by which k is still to be scaled
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        kS[c] = warp_sum<kShare>(kS[c]);
        qS[c] = warp_sum<kShare>(qS[c]);
        delta[c] = factor * beta_tile[buffer][step] * (v.of[c] - factor * kS[c]);
      }
      if (part < 2 && t0 + step < a.L && j + part < a.Dv) {
        const float o = part == 0 ? qS[0] + qk * delta[0] : qS[1] + qk * delta[1];
        store_global(&a.o.row(b, h, t0 + step)[j + part], a.scale * o);
      }
#pragma unroll
      for (int r = 0; r < kDk / kShare; r += 4) {
        const Floats<4> k = k_tile[buffer][step][r / 4 * kShare + part];
#pragma unroll
        for (int e = 0; e < 4; ++e) {
#pragma unroll
          for (int c = 0; c < 2; ++c) S[r + e][c] += k.of[e] * delta[c];
        }
      }
    }
    finish_tile(buffer ^ 1);
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

std::int64_t tile_count(const FloatArguments& a) {
  return (a.Dv - 1) / kColumns + 1;
}

std::int64_t block_count(const FloatArguments& a) {
  return std::int64_t(a.B) * a.H * tile_count(a);
}

template <bool kNormalize>
auto kernel_for(int Dk) {
  return Dk <= 32    ? recurrent_kernel<32, kNormalize>
         : Dk <= 64  ? recurrent_kernel<64, kNormalize>
         : Dk <= 128 ? recurrent_kernel<128, kNormalize>
                     : recurrent_kernel<256, kNormalize>;
}

}  // namespace

void recurrent_gpu(const FloatArguments& a) {
  launch(a.normalize_keys ? kernel_for<true>(a.Dk) : kernel_for<false>(a.Dk), {unsigned(block_count(a)), kThreads}, a);
}

}  // namespace tutorial::kda
