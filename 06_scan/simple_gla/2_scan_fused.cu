/// @file
/// `scan_fused`: one kernel, whose tiles look back.
///
/// Idea: a run of steps is a map like a single step, so the scan may run over tiles of 64 steps. The operator scan's
/// `single_pass` scans one number per channel. Here a block does the same with 32 columns of a state in its registers.
/// It adds up its tile, learns what came before from the tiles before, and walks the tile once more to compute the
/// outputs. The states of the steps within a tile never leave the registers, and its q, k and v wait in shared memory.
/// Grows out of: 1_scan_states.cu
/// Improves on: `scan_states` writes and reads a state twice for each step. (The variant `scan_tiles` does so once in 64
/// steps, but in three kernels, which read k and v twice.)
/// Unchanged: the recurrence, and which elements of a state each thread has.
/// Equation:
///
///   tile:   H_n = sum_t exp(g_{t+1} + ... + g_C) k_t^T v_t over its steps t = 1 to C, from zeros on
///           H_n and its decay exp(g_1 + ... + g_C)                                                      published
///   before: S_{n-1}: H of tiles n - 1, n - 2, ..., each decayed, back to the first that knows S at its end
///   tile:   S_n = decay S_{n-1} + H_n                                                                   published
///   walk:   S = exp(g_t) S + k_t^T v_t,  o_t = scale q_t S
///
/// The last tile of a sequence publishes nothing and does not compute its H_n. H_n takes one multiply-add per element
/// and step instead of a decay and an addition. Its exponents are sums of the gates *behind* a step (tile_gates.cuh).
/// Nothing is divided by a gate, and no sum of gates is subtracted from another.
/// Shapes: as `scan_states`, but H_n and S_n [B, H, tiles, Dk Dv] of ceil(L / 64) tiles; 64 steps of q, k and of 32
/// columns of v in shared memory; 32 steps if Dk > 128.
/// Thread mapping: block (tile, 32 columns, head), in the order of look_back.cuh. What a thread publishes is read by
/// the thread of the same number in a later block, so each warp waits for only one warp. Per warp, one word of
/// look_back.cuh holds the sum of the tile's gates and says that the warp's part of the state is in memory. The word is
/// released after the state has been written, and acquired before the state is read. So a warp that sees the word also
/// sees the state.
/// Resources: Dk / 2 registers per thread for S and H_n, 72 KB of shared memory at Dk = 128: three blocks per
/// multiprocessor. Two exponentials per step and block.
/// Work: 8 Dk Dv operations per head and position, while a loop over time has 6 Dk Dv. Tensor cores cannot help.
/// Bytes: v and o once, q and k once for each 32 columns, from the second-level cache after the first; per tile two
/// states are written and one or more read, 12 Dk Dv bytes per 64 steps. That is 3 KB per step at Dk = Dv = 128, beside
/// 2 KB of q, k, v and o. The published states take 8 Dk Dv bytes of memory per tile.
/// Bound by: the fp32 units.
/// Requires: Dk <= 256.
/// Weakness: it still computes step by step, with 8 Dk Dv operations on the fp32 units. Chapter 04's chunks take 4 Dk
/// Dv operations and those of the scores, on tensor cores, which have ten times the rate.
/// Sources: Merrill and Garland, NVR-2016-002, section 4, for the look-back.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan/look_back.cuh"
#include "06_scan/simple_gla.hpp"
#include "06_scan/simple_gla/published_states.cuh"
#include "06_scan/simple_gla/state_plan.hpp"
#include "06_scan/simple_gla/tile_gates.cuh"
#include "06_scan/state_tile.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::scan {
namespace {

using simple_gla::FloatArguments;

/// S at the start of a tile > 0. Every thread computes its part of it.
template <int kDk>
__device__ __forceinline__ void look_back(StateTile<kDk>& S, const PublishedStates& states, int tile, int chain) {
  const LookBack& back = states.back;
  S.clear();
  float log_decay = 0;  // from the end of tile n to the start of this one
  for (int n = tile - 1;; --n) {
    const Words& words = back.at(n, chain, int(threadIdx.x) / 32);
    std::uint64_t own = kNotPublished;
    bool is_whole = false;
    for (;; backoff()) {
      is_whole = load_acquire(&words.up_to_end) != kNotPublished;
      if (is_whole || (own = load_acquire(&words.own)) != kNotPublished) break;
    }
    S.add_packed(decay(log_decay), (is_whole ? states.up_to_end : states.own) + states.template first<kDk>(n, chain));
    if (is_whole) return;  // the first tile publishes only the state at its end
    log_decay += to_map(own).log_decay;
  }
}

template <int kDk, bool kVector>
__global__ void __launch_bounds__(kStateThreads, blocks_of_tiles(kDk))
    tiles_kernel(FloatArguments a, PublishedStates states) {
  constexpr int kSteps = steps_of_tile(kDk);
  __shared__ TileGates<kSteps> gates;
  __shared__ int taken_tile;
  float* const k = dynamic_shared<float>();
  float *const q = k + kSteps * kDk, *const v = q + kSteps * kDk;
  const LookBack& back = states.back;
  const int thread = int(threadIdx.x), tiles = column_tiles(a.Dv);
  if (thread == 0) taken_tile = back.take_tile();
  __syncthreads();
  const int tile = taken_tile / back.chains, chain = taken_tile % back.chains;
  const int j = chain % tiles * kStateColumns, columns = a.Dv - j;
  const int head = chain / tiles, h = head % a.H, b = head / a.H;
  const int first = tile * kSteps, rows = min(kSteps, a.L - first);
  const bool is_last = rows == a.L - first;

  load_rows_async<kVector, kSteps, kDk>(k, a.k.row(b, h, first), a.k.stride_l, rows, a.Dk);
  load_rows_async<kVector, kSteps, kStateColumns>(v, a.v.row(b, h, first) + j, a.v.stride_l, rows, columns);
  load_rows_async<kVector, kSteps, kDk>(q, a.q.row(b, h, first), a.q.stride_l, rows, a.Dk);
  cp_async_commit();
  if (thread < 32) load_gates(gates, a, b, h, first, rows);
  cp_async_wait<0>();
  __syncthreads();

  const auto words = [&]() -> Words& { return back.at(tile, chain, thread / 32); };
  StateTile<kDk> S, H;
  if (!is_last) {
    H.clear();
#pragma unroll 2
    for (int step = 0; step < kSteps; ++step) {
      float of[4];
      load_values(v + step * kStateColumns, gates.decay_to_end[step], of);
      H.add(k + step * kDk, of);
    }
    if (tile > 0) publish(H, gates.log_decay, states.own + states.template first<kDk>(tile, chain), &words().own);
  }
  if (tile > 0) {
    look_back(S, states, tile, chain);
  } else {
    S.clear();
    if (tile == 0 && a.initial_state.data) {
      load_state(S, a.initial_state.row(b, h, 0) + j, a.initial_state.stride_l, a.Dk, columns);
    }
  }
  if (!is_last) {
    H.add_scaled(decay(gates.log_decay), S);
    publish(H, 0.0f, states.up_to_end + states.template first<kDk>(tile, chain), &words().up_to_end);
  }
#pragma unroll 2
  for (int step = 0; step < rows; ++step) {
    float of[4], o[4];
    load_values(v + step * kStateColumns, 1, of);
    S.decay_and_add(gates.gate[step], k + step * kDk, of);
    S.read(q + step * kDk, o);
    store_output(a.o.row(b, h, first + step) + j, o, a.scale, columns);
  }
  if (is_last && a.final_state.data) {
    store_state(S, a.final_state.row(b, h, 0) + j, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void scan_fused(const FloatArguments& a) {
  const StatePlan plan(a, steps_of_tile(a.Dk));
  const PublishedStates states = make_published_states(plan);
  select_state_shape(a, [&]<class Shape>(Shape) {
    launch(tiles_kernel<Shape::kDk, Shape::kVector>,
           {unsigned(plan.chains * plan.tiles), kStateThreads, plan.shared_bytes()}, a, states);
  });
}

}  // namespace tutorial::scan
