/// @file
/// `scan_states`: every product and every state is in memory, and the chapter's scan connects them. (The earlier stages
/// in the operator's list are those of chapter 04.)
///
/// Idea: a step of the recurrence is a map whose value is a matrix. Its elements are Dk Dv channels that share a gate.
/// So the operator consists of three known parts: outer products, a scan, and products of rows with matrices.
/// Grows out of: 04_fused_chunk/simple_gla/1_recurrent.cpp; port to the GPU: the operator scan replaces the loop over
/// time; the work before and after it becomes kernels
/// Improves on: the stages of chapter 04 use chunks and matrix products that are made for this operator. Here only the
/// scan depends on the order in time.
/// Unchanged: the recurrence, in fp32.
/// Equation:
///
///   x_t = k_t^T v_t                    states_kernel; x_1 is exp(g_1) S_0 + k_1^T v_1: the scan has no initial state
///   S_t = exp(g_t) S_{t-1} + x_t       dispatch() of the operator scan, D = Dk Dv, Dg = 1
///   o_t = scale q_t S_t                states_kernel again; the last S_t is the final state
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; g [B, H, L]; S_0 and final_state [B, H, Dk, Dv]; x and S [B, H, L,
/// Dk Dv], in the order in which threads hold them, with Dk rounded up to 64, 128 or 256 and Dv to a multiple of 32;
/// all fp32 in device memory. S does not overwrite x: the scan reads x with load_global(), which requires that no
/// thread writes there during the kernel.
/// Thread mapping: block (head, position, 32 columns) has 128 threads and the columns in registers (state_tile.cuh).
/// Resources: Dk / 4 registers per thread for the columns.
/// Work: 8 Dk Dv operations per head and position: one product, 4 for the scan, 2 for o; an exponential for four.
/// Bytes: 16 Dk Dv per head and position, because both x and S are written and read. At Dk = Dv = 128 that is 256 KB,
/// beside 2 KB of q, k, v and o. x and S take 8 Dk Dv bytes of memory per head and position, 128 KB; that is 69 GB for
/// 32 heads of 16384 positions.
/// Bound by: memory.
/// Requires: memory for x and S; Dk <= 256.
/// Weakness: all states go through memory, although each is needed only until it has been multiplied with q.
/// Sources: Katsch, "GateLoop", arXiv 2311.01927: the associative scan over materialised k^T v.

#include <cuda_runtime.h>

#include "06_scan/affine.hpp"
#include "06_scan/scan.hpp"
#include "06_scan/simple_gla.hpp"
#include "06_scan/simple_gla/scan_of_states.hpp"
#include "06_scan/simple_gla/state_plan.hpp"
#include "06_scan/state_tile.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::scan {
namespace {

using simple_gla::FloatArguments;

constexpr int kSteps = 1;  // of a tile

/// Grid (heads) (positions) (tiles of columns).
/// @tparam kOutputs false: writes x_t into `states`; true: reads S_t from there, writes o_t
template <int kDk, bool kVector, bool kOutputs>
__global__ void __launch_bounds__(kStateThreads) states_kernel(FloatArguments a, float4* states) {
  __shared__ float gate;
  float* const k = dynamic_shared<float>();
  float *const q = k + kSteps * kDk, *const v = q + kSteps * kDk;
  const int thread = int(threadIdx.x), tiles = column_tiles(a.Dv);
  const int j = int(blockIdx.x) % tiles * kStateColumns, columns = a.Dv - j;
  const int tile = int(blockIdx.x) / tiles % a.L, head = int(blockIdx.x) / tiles / a.L, h = head % a.H, b = head / a.H;
  const int first = tile * kSteps, rows = min(kSteps, a.L - first);
  const bool is_last = rows == a.L - first;
  float4* const own = states + std::int64_t(blockIdx.x) * StateTile<kDk>::kRows * kStateThreads;

  if constexpr (kOutputs) {
    load_rows_async<kVector, kSteps, kDk>(q, a.q.row(b, h, first), a.q.stride_l, rows, a.Dk);
  } else {
    load_rows_async<kVector, kSteps, kDk>(k, a.k.row(b, h, first), a.k.stride_l, rows, a.Dk);
    load_rows_async<kVector, kSteps, kStateColumns>(v, a.v.row(b, h, first) + j, a.v.stride_l, rows, columns);
  }
  cp_async_commit();
  if (thread == 0) gate = decay(load_global(a.g.row(b, h, first)));
  cp_async_wait<0>();
  __syncthreads();

  StateTile<kDk> S;
  if constexpr (kOutputs) {
    S.load_packed(own);
    float o[4];
    S.read(q, o);
    store_output(a.o.row(b, h, first) + j, o, a.scale, columns);
    if (is_last && a.final_state.data) {
      store_state(S, a.final_state.row(b, h, 0) + j, a.final_state.stride_l, a.Dk, columns);
    }
  } else {
    S.clear();
    if (tile == 0 && a.initial_state.data) {
      load_state(S, a.initial_state.row(b, h, 0) + j, a.initial_state.stride_l, a.Dk, columns);
    }
    float of[4];
    load_values(v, 1, of);
    S.decay_and_add(gate, k, of);
    S.store_packed(own);
  }
}

template <bool kOutputs>
void launch_tiles(const FloatArguments& a, float* states) {
  const StatePlan plan(a, kSteps);
  select_state_shape(a, [&]<class Shape>(Shape) {
    launch(states_kernel<Shape::kDk, Shape::kVector, kOutputs>,
           {unsigned(plan.chains * plan.tiles), kStateThreads, plan.shared_bytes()}, a,
           reinterpret_cast<float4*>(states));
  });
}

}  // namespace

void scan_states(const FloatArguments& a) {
  const StatePlan plan(a, kSteps);
  float* products = workspace<float>(kStatesTag, std::size_t(2 * plan.floats()));
  float* states = products + plan.floats();
  launch_tiles<false>(a, products);
  dispatch(scan_of_states(a, plan, products, a.g, states));
  launch_tiles<true>(a, states);
}

}  // namespace tutorial::scan
