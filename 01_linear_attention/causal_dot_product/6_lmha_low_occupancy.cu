/// @file
/// `lmha_low_occupancy`: parallel over time, for few heads.
///
/// Idea: S_t is a prefix sum, and prefix sums can be computed in parallel. A block takes a single value column of one
/// (batch, head), and its warps take different positions at once.
/// Grows out of: 4_registers.cu
/// Improves on: `registers` and `lmha` give a head to one block, which computes one position after the other. With 4
/// heads, only 4 of the GPU's multiprocessors work.
/// Unchanged: S in registers, no atomics; as in `lmha`, the next rows are loaded ahead.
/// Equation: S_t[:, j] = S_{t0-1}[:, j] + sum_{t0<=i<=t} k_i^T v_i[j] and o_t[j] = q_t S_t[:, j], for one column j
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv], fp32 in device memory; totals [2, W, Dk] in shared memory for W
/// warps.
/// Thread mapping: block (b, h, j) has W = 4, 8 or 16 warps. Warp w takes the 4 positions t0 + 4 w to t0 + 4 w + 3. Its
/// lanes run along Dk: lane l has elements l, l + 32, ... In a warp the prefix over its 4 positions is three additions.
/// Each warp writes the total of its positions to shared memory, and after one barrier adds up the totals of the warps
/// before it. Each of the block's 16 to 64 positions then has its state. A sum over the lanes of q_t S_t[:, j], by
/// shuffles (warp_sum() in common/device/warp.cuh), gives o_t[j].
///
///   warp 0  | k0 v0 | +k1 v1 | +k2 v2 | +k3 v3 |-> total 0 -.    barrier, then S =
///   warp 1  | k4 v4 | +k5 v5 | +k6 v6 | +k7 v7 |-> total 1 -+-.  S_{t0-1} + totals before mine
///   warp 2  | ...                                            | |
///
/// The totals have two buffers, used in turn, so that one barrier per round is enough. A warp that overwrites a buffer
/// has passed the barrier of the round in between, and no warp passes that barrier before all have read the buffer.
/// Resources: about 12 Dk / 32 registers for q, k and sums; 8 W Dk bytes of shared memory.
/// Work: 4 Dk Dv operations per head and position, and Dk Dv (1 + W / 2) additions for the prefix: three quarters as
/// many with 4 warps, and 9 Dk Dv with 16. So more warps pay only where blocks are few.
/// Bytes: q and k once *for each of the Dv columns*, mostly from the second-level cache; of v and o one sector of 32
/// bytes for each float that is used.
/// Bound by: with few heads the latency of a round; with many heads the traffic of 8 L Dk Dv bytes per head, and those
/// additions.
/// Requires: Dk <= 256.
/// Weakness: it reads q and k Dv times. It pays only where nothing else fills the GPU.
/// Sources: the plan is that of fast-transformers' kernel for few blocks.

#include <cuda_runtime.h>

#include "01_linear_attention/causal_dot_product.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"

namespace tutorial::causal_dot_product {
namespace {

constexpr int kSteps = 4;  // positions per warp and round

/// Grid B H Dv: one block per (batch, head, value column). With up to 4 elements per lane the launch bounds request 16
/// warps per multiprocessor, which leaves a thread 128 registers; 8 elements need more.
/// @tparam kPerLane ceil(Dk / 32), rounded up to a power of two
template <int kPerLane, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kPerLane <= 4 ? 16 / kWarps : 1) low_occupancy_kernel(Arguments a) {
  __shared__ float totals[2][kWarps][kPerLane][32];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int j = int(blockIdx.x) % a.Dv;
  const int h = int(blockIdx.x) / a.Dv % a.H, b = int(blockIdx.x) / a.Dv / a.H;

  int t = warp * kSteps;  // the warp's first step of this round
  const float* q_row = a.q.row(b, h, t) + lane;
  const float* k_row = a.k.row(b, h, t) + lane;
  const float* v_row = a.v.row(b, h, t) + j;
  float* o_row = a.o.row(b, h, t + lane / 8) + j;  // lane / 8 is the step whose output the lane ends up with

  // kSteps rows from `row` on, of which the first `steps` exist; then moves `row` to the next round.
  auto load_rows = [&](float(&x)[kSteps][kPerLane], const float*& row, std::int64_t stride, int steps) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int e = 0; e < kPerLane; ++e) {
        x[step][e] = step < steps && lane + 32 * e < a.Dk ? load_global(&row[step * stride + 32 * e]) : 0;
      }
    }
    row += kWarps * kSteps * stride;
  };
  float q_t[kSteps][kPerLane], k_t[kSteps][kPerLane], v_t[kSteps];
  auto load_keys_and_values = [&](int steps) {
    load_rows(k_t, k_row, a.k.stride_l, steps);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) v_t[step] = step < steps ? load_global(&v_row[step * a.v.stride_l]) : 0;
    v_row += kWarps * kSteps * a.v.stride_l;
  };

  float S[kPerLane] = {};  // before the block's first step; every warp keeps its own copy
  load_keys_and_values(a.L - t);
  load_rows(q_t, q_row, a.q.stride_l, a.L - t);
  for (int t0 = 0, buffer = 0; t0 < a.L; t0 += kWarps * kSteps, buffer ^= 1) {
    float prefix[kSteps][kPerLane];
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      prefix[0][e] = k_t[0][e] * v_t[0];
#pragma unroll
      for (int step = 1; step < kSteps; ++step) prefix[step][e] = prefix[step - 1][e] + k_t[step][e] * v_t[step];
      totals[buffer][warp][e][lane] = prefix[kSteps - 1][e];  // of this warp's four positions
    }
    const int steps_next = a.L - t - kWarps * kSteps;
    load_keys_and_values(steps_next);  // this round's are used up: the next ones load during the barrier
    __syncthreads();

    float before[kPerLane];
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      before[e] = S[e];
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float total = totals[buffer][w][e][lane];
        if (w < warp) before[e] += total;  // of the warps before this one
        S[e] += total;                     // of all warps: S before the next round
      }
    }
    float parts[kSteps] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int e = 0; e < kPerLane; ++e) parts[step] += q_t[step][e] * (before[e] + prefix[step][e]);
    }
    load_rows(q_t, q_row, a.q.stride_l, steps_next);
    const float o_t = warp_sum_of_four(parts, lane);
    if (lane % 8 == 0 && lane / 8 < a.L - t) store_global(o_row, o_t);
    o_row += kWarps * kSteps * a.o.stride_l;
    t += kWarps * kSteps;
  }
}

template <int kPerLane>
void launch_width(const Arguments& a) {
  const auto blocks = unsigned(a.B * a.H * a.Dv);
  const auto run = [&](auto kernel, unsigned warps) { launch(kernel, {blocks, warps * 32}, a); };
  // A block of more warps takes more positions at once, but each of its warps adds up the totals of all. That pays only
  // while a multiprocessor has hardly one block, and only while a lane has few elements to add up.
  if constexpr (kPerLane <= 2) {
    const auto multiprocessors = unsigned(multiprocessor_count());
    if (blocks <= multiprocessors) return run(low_occupancy_kernel<kPerLane, 16>, 16);
    if (blocks <= 2 * multiprocessors) return run(low_occupancy_kernel<kPerLane, 8>, 8);
  }
  run(low_occupancy_kernel<kPerLane, 4>, 4);
}

}  // namespace

void lmha_low_occupancy(const Arguments& a) {
  if (a.Dk <= 32) return launch_width<1>(a);
  if (a.Dk <= 64) return launch_width<2>(a);
  if (a.Dk <= 128) return launch_width<4>(a);
  launch_width<8>(a);
}

}  // namespace tutorial::causal_dot_product
