/// @file
/// `scan_tiles`: only every 64th state is in memory.
///
/// Idea: a run of steps is a map like a single step, so the scan may run over tiles of 64 steps. A first kernel adds up
/// the products of each tile. The scan then computes the state at the end of each tile. A second kernel walks all tiles
/// at once, each from the state at the end of the tile before, and computes the outputs. The states of the steps within
/// a tile never leave the registers.
/// Improves on: `scan_states` writes and reads a state twice for each step.
/// Unchanged: its three parts: products, a scan by the operator scan, and outputs.
/// Equation:
///
///   tile:   H_n = sum_t exp(g_{t+1} + ... + g_C) k_t^T v_t over its steps t = 1 to C, from exp(g_1 + ... + g_C) S_0 on
///   scan:   S_n = exp(g_1 + ... + g_C) S_{n-1} + H_n                     the state at the end of tile n
///   walk:   S = exp(g_t) S + k_t^T v_t,  o_t = scale q_t S               from S_{n-1}
///
/// H_n takes one multiply-add per element and step instead of a decay and an addition. Its exponents are sums of the
/// gates *behind* a step (tile_gates.cuh). Nothing is divided by a gate, and no sum of gates is subtracted from
/// another.
/// Shapes: as `scan_states`, but H_n and S_n [B, H, tiles, Dk Dv] of ceil(L / 64) tiles; 64 steps of q, k and of 32
/// columns of v in shared memory.
/// Thread mapping: block (head, tile, 32 columns) has 128 threads and the columns in registers (state_tile.cuh). For Dk
/// > 128 a tile has 32 steps.
/// Resources: Dk / 4 registers per thread for the columns; 72 KB of shared memory at Dk = 128.
/// Work: 8 Dk Dv operations per head and position: 2 for H_n, 1 for the decay, 1 for the product, 2 for the sum with it
/// and 2 for o.
/// Bytes: k and v twice, q and o once, k and q again for each 32 columns, mostly from the second-level cache; 16 Dk Dv
/// bytes of states per 64 steps. H_n and S_n take 8 Dk Dv bytes of memory per tile.
/// Bound by: the fp32 units.
/// Requires: Dk <= 256.
/// Weakness: three kernels and the states between them; k and v are read twice.
/// Sources: as `scan_states`; Blelloch, CMU-CS-90-190, section 1.2.1, for a scan over the sums of the processors.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/simple_gla/dispatch/scan_tiles.hpp"
#include "06_scan/simple_gla/scan_of_states.hpp"
#include "06_scan/simple_gla/state_plan.hpp"
#include "06_scan/simple_gla/tile_gates.cuh"
#include "06_scan/state_tile.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::scan {
namespace {

using simple_gla::FloatArguments;

/// Grid (heads) (tiles) (tiles of columns).
/// @tparam kOutputs false: writes H_n into `states` and the tile's sum of gates into `log_decays`; true: reads S_{n-1}
/// from `states`, writes o_t
template <int kDk, bool kVector, bool kOutputs>
__global__ void __launch_bounds__(kStateThreads, blocks_of_tiles(kDk))
    tiles_kernel(FloatArguments a, float4* states, float* log_decays) {
  constexpr int kSteps = steps_of_tile(kDk);
  __shared__ TileGates<kSteps> gates;
  float* const k = dynamic_shared<float>();
  float *const q = k + kSteps * kDk, *const v = q + kSteps * kDk;
  const int thread = int(threadIdx.x), tiles = column_tiles(a.Dv), N = (a.L - 1) / kSteps + 1;
  const int j = int(blockIdx.x) % tiles * kStateColumns, columns = a.Dv - j;
  const int tile = int(blockIdx.x) / tiles % N, head = int(blockIdx.x) / tiles / N, h = head % a.H, b = head / a.H;
  const int first = tile * kSteps, rows = min(kSteps, a.L - first);
  float4* const own = states + std::int64_t(blockIdx.x) * StateTile<kDk>::kRows * kStateThreads;

  load_rows_async<kVector, kSteps, kDk>(k, a.k.row(b, h, first), a.k.stride_l, rows, a.Dk);
  load_rows_async<kVector, kSteps, kStateColumns>(v, a.v.row(b, h, first) + j, a.v.stride_l, rows, columns);
  if constexpr (kOutputs) {
    load_rows_async<kVector, kSteps, kDk>(q, a.q.row(b, h, first), a.q.stride_l, rows, a.Dk);
  }
  cp_async_commit();
  if (thread < 32) load_gates(gates, a, b, h, first, rows);
  cp_async_wait<0>();
  __syncthreads();

  StateTile<kDk> S;
  if (kOutputs && tile > 0) {
    S.load_packed(own - tiles * StateTile<kDk>::kRows * kStateThreads);
  } else {
    S.clear();
    if (tile == 0 && a.initial_state.data) {
      load_state(S, a.initial_state.row(b, h, 0) + j, a.initial_state.stride_l, a.Dk, columns);
    }
  }
  if constexpr (kOutputs) {
#pragma unroll 2
    for (int step = 0; step < rows; ++step) {
      float of[4], o[4];
      load_values(v + step * kStateColumns, 1, of);
      S.decay_and_add(gates.gate[step], k + step * kDk, of);
      S.read(q + step * kDk, o);
      store_output(a.o.row(b, h, first + step) + j, o, a.scale, columns);
    }
    if (tile == N - 1 && a.final_state.data) {
      store_state(S, a.final_state.row(b, h, 0) + j, a.final_state.stride_l, a.Dk, columns);
    }
  } else {
    S.scale(decay(gates.log_decay));
#pragma unroll 2
    for (int step = 0; step < kSteps; ++step) {
      float of[4];
      load_values(v + step * kStateColumns, gates.decay_to_end[step], of);
      S.add(k + step * kDk, of);
    }
    S.store_packed(own);
    if (thread == 0 && j == 0) store_global(&log_decays[head * N + tile], gates.log_decay);
  }
}

template <bool kOutputs>
void launch_tiles(const FloatArguments& a, float* states, float* log_decays) {
  const StatePlan plan(a, steps_of_tile(a.Dk));
  select_state_shape(a, [&]<class Shape>(Shape) {
    launch(tiles_kernel<Shape::kDk, Shape::kVector, kOutputs>,
           {unsigned(plan.chains * plan.tiles), kStateThreads, plan.shared_bytes()}, a,
           reinterpret_cast<float4*>(states), log_decays);
  });
}

}  // namespace

void scan_tiles(const FloatArguments& a) {
  const StatePlan plan(a, steps_of_tile(a.Dk));
  float* sums = workspace<float>(kStatesTag, std::size_t(2 * plan.floats() + plan.heads * plan.tiles));
  float *states = sums + plan.floats(), *log_decays = states + plan.floats();
  launch_tiles<false>(a, sums, log_decays);
  dispatch(scan_of_states(a, plan, sums, packed<const float>(log_decays, a.H, plan.tiles, 1), states));
  launch_tiles<true>(a, states, log_decays);
}

}  // namespace tutorial::scan
