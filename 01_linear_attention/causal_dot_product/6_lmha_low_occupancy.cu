/// @file
/// Stage 6, `lmha_low_occupancy`: parallel over time, for few heads.
///
/// Idea: S_t is a prefix sum, and prefix sums can be computed in parallel. A block takes a single value column of one
/// (batch, head), and its warps take different time steps at once.
/// Mends: stage 5 gives a head to one block, which takes one step after the other: with 4 heads, 4 of this GPU's
/// multiprocessors work. Same: S in registers, q, k and v loaded ahead, no atomics.
///
///   S_t = S_(t0-1) + sum_{t0<=i<=t} k_i v_i          one column of S: Dk floats, so k_i v_i is a vector, v_i a number
///   o_t = q_t . S_t                                  one number
///
/// Who does what: block (b, h, j) has 4, 8 or 16 warps. Warp w takes the 4 steps t0 + 4 w to t0 + 4 w + 3; its lanes
/// run along Dk (lane l has elements l, l + 32, ...). In a warp the prefix over its 4 steps is three additions. Across
/// warps each writes the total of its steps to shared memory, and after one barrier adds up the totals of the warps
/// before it: with that, every one of the block's 16 to 64 steps has its state. A warp reduction (a sum over the
/// lanes, by shuffles) of q_t S_t gives o_t.
///
///   warp 0  | k0 v0 | +k1 v1 | +k2 v2 | +k3 v3 |-> total 0 -.
///   warp 1  | k4 v4 | +k5 v5 | +k6 v6 | +k7 v7 |-> total 1 -+-. barrier, then  S = S_(t0-1) + totals before mine
///   warp 2  | ...                                            | |
///
/// The totals have two buffers, used in turn, so that one barrier a round is enough: whoever overwrites a buffer
/// has passed the barrier of the round between, which nobody reaches before having read it.
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv], fp32 in global memory; totals [2, W, Dk] in shared memory for W
/// warps.
/// Resources: about 12 Dk / 32 registers for q, k and sums; 8 W Dk bytes of shared memory.
/// Work: 2 Dk Dv multiply-adds a step, and Dk Dv (1 + W / 2) additions for the prefix: 3 for each 2 multiply-adds
/// with 4 warps, 9 with 16, which is why more warps pay only where blocks are few.
/// Bytes: q and k once *for each of the Dv columns*, mostly from the second-level cache, and of v and o a sector of
/// 32 bytes for each float used.
/// Limit: with few heads the latency of a round, with many that traffic, 8 L Dk Dv bytes a head, and those
/// additions.
/// Needs: Dk <= 256.
/// Weakness: it reads q and k Dv times. Stage 7 uses it only where nothing else fills the GPU.
/// Source: the plan of fast-transformers' kernel for few blocks.

#include <cuda_runtime.h>

#include <climits>

#include "01_linear_attention/linear_attention.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/warp.cuh"

namespace tutorial::causal_dot_product {
namespace {

constexpr int kSteps = 4;  // time steps a warp and round

/// Sums four values over the lanes of a warp, and leaves sum number `lane / 8` in each lane. Reducing them one by one
/// takes 4 x 5 shuffles. But in the first round a lane can hand over two of its four values and keep two, in the second
/// one of two, and is left with a single one for the other three rounds: 2 + 1 + 3 shuffles.
__device__ float warp_sum_of_four(const float (&x)[4], int lane) {
  const bool upper = lane & 16, odd = lane & 8;
  float y[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) y[i] = (upper ? x[i + 2] : x[i]) + shuffle_xor(upper ? x[i] : x[i + 2], 16);
  float z = (odd ? y[1] : y[0]) + shuffle_xor(odd ? y[0] : y[1], 8);
#pragma unroll
  for (int distance = 4; distance > 0; distance /= 2) z += shuffle_xor(z, distance);
  return z;
}

/// Grid B H Dv: a block a (batch, head, value column). kPerLane = ceil(Dk / 32) rounded up to a power of two. With
/// up to 4 elements a lane the bounds ask for 16 warps a multiprocessor, which leaves a thread 128 registers; 8
/// elements need more.
template <int kPerLane, int kWarps>
__global__ void __launch_bounds__(kWarps * 32, kPerLane <= 4 ? 16 / kWarps : 1)
    low_occupancy_kernel(View<const float> q, View<const float> k, View<const float> v, View<float> o, int H, int L,
                         int Dk, int Dv) {
  __shared__ float totals[2][kWarps][kPerLane][32];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int j = int(blockIdx.x) % Dv;
  const int h = int(blockIdx.x) / Dv % H, b = int(blockIdx.x) / Dv / H;

  int t = warp * kSteps;  // the warp's first step of this round
  const float* q_row = q.row(b, h, t) + lane;
  const float* k_row = k.row(b, h, t) + lane;
  const float* v_row = v.row(b, h, t) + j;
  float* o_row = o.row(b, h, t + lane / 8) + j;  // lane / 8 is the step whose output the lane ends up with

  // kSteps rows from `row` on, of which the first `steps` are there; then moves `row` to the next round.
  auto load_rows = [&](float(&x)[kSteps][kPerLane], const float*& row, std::int64_t stride, int steps) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int e = 0; e < kPerLane; ++e) {
        x[step][e] = step < steps && lane + 32 * e < Dk ? load_global(&row[step * stride + 32 * e]) : 0;
      }
    }
    row += kWarps * kSteps * stride;
  };
  float q_t[kSteps][kPerLane], k_t[kSteps][kPerLane], v_t[kSteps];
  auto load_keys_and_values = [&](int steps) {
    load_rows(k_t, k_row, k.stride_l, steps);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) v_t[step] = step < steps ? load_global(&v_row[step * v.stride_l]) : 0;
    v_row += kWarps * kSteps * v.stride_l;
  };

  float S[kPerLane] = {};  // before the block's first step; every warp keeps its own copy
  load_keys_and_values(L - t);
  load_rows(q_t, q_row, q.stride_l, L - t);
  for (int t0 = 0, buffer = 0; t0 < L; t0 += kWarps * kSteps, buffer ^= 1) {
    float prefix[kSteps][kPerLane];
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      prefix[0][e] = k_t[0][e] * v_t[0];
#pragma unroll
      for (int step = 1; step < kSteps; ++step) prefix[step][e] = prefix[step - 1][e] + k_t[step][e] * v_t[step];
      totals[buffer][warp][e][lane] = prefix[kSteps - 1][e];
    }
    const int steps_next = L - t - kWarps * kSteps;
    load_keys_and_values(steps_next);  // this round's have been used: the next ones are on their way during the barrier
    __syncthreads();

    float before[kPerLane];
#pragma unroll
    for (int e = 0; e < kPerLane; ++e) {
      before[e] = S[e];
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float total = totals[buffer][w][e][lane];
        if (w < warp) before[e] += total;
        S[e] += total;
      }
    }
    float parts[kSteps] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int e = 0; e < kPerLane; ++e) parts[step] += q_t[step][e] * (before[e] + prefix[step][e]);
    }
    load_rows(q_t, q_row, q.stride_l, steps_next);
    const float o_t = warp_sum_of_four(parts, lane);
    if (lane % 8 == 0 && lane / 8 < L - t) store_global(o_row, o_t);
    o_row += kWarps * kSteps * o.stride_l;
    t += kWarps * kSteps;
  }
}

template <int kPerLane>
void launch_width(const Arguments& a) {
  const auto blocks = unsigned(a.B * a.H * a.Dv);
  const auto run = [&](auto kernel, unsigned warps) {
    launch(kernel, {blocks, warps * 32}, a.q, a.k, a.v, a.o, a.H, a.L, a.Dk, a.Dv);
  };
  // More warps a block take more steps at once, and each of them adds up the totals of all: worth it only while a
  // multiprocessor has hardly a block, and not where a lane has so many elements that the sums outweigh the rest.
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

std::string lmha_low_occupancy_limits(const Arguments& a) {
  if (a.L > INT_MAX - 64) return "L > 2^31 - 65: positions are counted in int";
  if (a.Dk > 256) return "Dk > 256: more than 8 elements of a row a lane";
  if (std::int64_t(a.B) * a.H * a.Dv > INT_MAX) return "B H Dv > 2^31 - 1: the grid's first dimension";
  return "";
}

}  // namespace tutorial::causal_dot_product
