/// @file
/// `scan_tiles`: only every 64th state is in memory.
///
/// Idea: a run of steps is a map like a single step, so the scan may run over tiles of 64 steps. A first kernel adds up
/// the products of each tile. The scan then computes the state at the end of each tile. A second kernel walks all tiles
/// at once, each from the state at the end of the tile before, and computes the outputs. The states of the steps within
/// a tile never leave the registers.
/// Grows out of: 1_scan_states.cu
/// Improves on: `scan_states` writes and reads a state twice for each step.
/// Unchanged: its three parts: products, a scan by the operator scan, and outputs.
/// Equation:
///
///   tile:   X_n = sum_t exp(g_{t+1} + ... + g_C) k_t^T v_t over its steps t = 1 to C, from exp(g_1 + ... + g_C) S_0 on
///   scan:   S_n = exp(g_1 + ... + g_C) S_{n-1} + X_n                     the state at the end of tile n
///   walk:   S = exp(g_t) S + k_t^T v_t,  o_t = scale q_t S               from S_{n-1}
///
/// X_n takes one multiply-add per element and step instead of a decay and an addition. Its exponents are sums of the
/// gates *behind* a step (tile_gates.cuh). Nothing is divided by a gate, and no sum of gates is subtracted from
/// another.
/// Shapes: as `scan_states`, but X and S [B, H, N, Dk Dv] of N = ceil(L / 64) tiles; 64 steps of q, k and of 32 columns
/// of v in shared memory.
/// Thread mapping: block (head, tile, 32 columns) has 128 threads and the columns in registers (state_tile.cuh). For Dk
/// > 128 a tile has 32 steps.
/// Resources: Dk / 4 registers per thread for the columns; 72 KB of shared memory at Dk = 128.
/// Work: 8 Dk Dv operations per head and position: 2 for X, 1 for the decay, 1 for the product, 2 for the sum with it
/// and 2 for o.
/// Bytes: k and v twice, q and o once, k and q again for each 32 columns, mostly from the second-level cache; 16 Dk Dv
/// bytes of states per 64 steps. X and S take 8 Dk Dv bytes of memory per tile.
/// Bound by: the fp32 units.
/// Requires: Dk <= 256.
/// Weakness: three kernels and the states between them; k and v are read twice.
/// Sources: as `scan_states`; Blelloch, CMU-CS-90-190, section 1.2.1, for a scan over the sums of the processors.

#include <cuda_runtime.h>

#include <climits>

#include "06_scan/affine.hpp"
#include "06_scan/memory_shortage.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/simple_gla.hpp"
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

constexpr const char* kTag = "simple_gla: sums and states of tiles";

/// Blocks on a multiprocessor at once.
template <int kDk>
inline constexpr int kBlocks = kDk <= 128 ? 3 : 2;

/// Grid (heads) (tiles) (tiles of columns).
/// @tparam kOutputs false: writes X_n into `states` and the tile's sum of gates into `log_decays`; true: reads S_{n-1}
/// from `states`, writes o_t
template <int kDk, bool kVector, bool kOutputs>
__global__ void __launch_bounds__(kStateThreads, kBlocks<kDk>)
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
      S.each(a.Dk, columns,
             [&](int d, int c, float& element) { element = load_global(&a.initial_state.row(b, h, d)[j + c]); });
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
      S.each(a.Dk, columns,
             [&](int d, int c, float& element) { store_global(&a.final_state.row(b, h, d)[j + c], element); });
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

/// The scan of the tiles' sums.
Arguments as_scan(const FloatArguments& a, float* sums, float* states, float* log_decays) {
  const StatePlan plan(a, steps_of_tile(a.Dk));
  Arguments scan{};
  scan.B = a.B, scan.H = a.H, scan.L = int(plan.tiles), scan.D = plan.state_size(), scan.Dg = 1;
  scan.x = packed<const float>(sums, a.H, plan.tiles, plan.state_size());
  scan.log_decay = packed<const float>(log_decays, a.H, plan.tiles, 1);
  scan.y = packed(states, a.H, plan.tiles, plan.state_size());
  return scan;
}

}  // namespace

void scan_tiles(const FloatArguments& a) {
  const StatePlan plan(a, steps_of_tile(a.Dk));
  float* sums = workspace<float>(kTag, std::size_t(2 * plan.floats() + plan.heads * plan.tiles));
  float *states = sums + plan.floats(), *log_decays = states + plan.floats();
  launch_tiles<false>(a, sums, log_decays);
  dispatch(as_scan(a, sums, states, log_decays));
  launch_tiles<true>(a, states, log_decays);
}

std::string scan_tiles_unsupported(const FloatArguments& a) {
  const StatePlan plan(a, steps_of_tile(a.Dk));
  if (a.Dk > kMaxKeyDim) return "Dk > 256: the state's columns would not fit into the registers of 16 threads";
  if (plan.chains * plan.tiles > INT_MAX) return "more than 2^31 - 1 tiles: the grid";
  if (a.L > INT_MAX - plan.steps) return "L > 2^31 - 1 less a tile: positions are counted in int";
  const std::string scan = dispatch_unsupported(as_scan(a, nullptr, nullptr, nullptr));
  return scan.empty() ? memory_shortage(kTag, scan_tiles_memory(a)) : "the scan of its states: " + scan;
}

std::int64_t scan_tiles_memory(const FloatArguments& a) {
  const StatePlan plan(a, steps_of_tile(a.Dk));
  const std::int64_t floats = 2 * plan.floats() + plan.heads * plan.tiles;
  return std::int64_t(sizeof(float)) * floats + dispatch_memory(as_scan(a, nullptr, nullptr, nullptr));
}

}  // namespace tutorial::scan
