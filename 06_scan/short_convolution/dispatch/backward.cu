/// @file
/// `dispatch` of the gradients: the window of dy reaches forwards where that of u reaches back.
///
/// Idea: du_t needs dy of t and of the W - 1 positions after it; dkernel needs u of t and of the W - 1 before it. A thread
/// walks a run with both windows in registers. dkernel is a sum over all positions and batch entries: a thread adds up
/// its run, leaves the W sums in memory, and a second kernel adds those of all runs. So the sums have one order, and two
/// calls give the same bits, which atomic additions would not.
/// Thread mapping: as the forward kernel, but two channels of bf16, and runs of 256 positions; in the second kernel a thread per element of dkernel.
/// Bytes: u, dy and du once, and the sums of the runs, 2 W numbers of fp32 for 256 positions.
/// Bound by: memory.
/// Requires: W <= 8.

#include <cuda_runtime.h>

#include <climits>

#include "06_scan/short_convolution.hpp"
#include "06_scan/short_convolution/columns.cuh"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"

namespace tutorial::short_convolution {
namespace {

constexpr int kRun = 256;   // positions of a thread
constexpr int kAtOnce = 8;  // whose inputs are under way

/// Runs of all batch entries.
template <class T>
std::int64_t runs_of(const BackwardArguments<T>& a) {
  return std::int64_t(a.B) * pieces_of(a.L, kRun);
}

/// dy at position t >= 0, zeros behind the last.
template <int kChannels, class T>
__device__ __forceinline__ void load_dy(float (&x)[kChannels], const BackwardArguments<T>& a, int b, int t, int d) {
  if (t < a.L) return load(x, a.dy.row(b, 0, t) + d);
#pragma unroll
  for (int c = 0; c < kChannels; ++c) x[c] = 0;
}

/// Grid blocks_of().
/// @tparam kWidth at least W @param sums [runs of all batch entries, D, W]
template <int kWidth, int kChannels, class T>
__global__ void __launch_bounds__(kThreads) gradients_kernel(BackwardArguments<T> a, float* sums) {
  const Place<kChannels> place(a.L, a.D, kRun);
  if (!place.exists) return;
  const int b = place.b, d = place.d;
  float filter[kWidth][kChannels], sum[kWidth][kChannels] = {};
  // Of eight positions: u from kWidth - 1 before the first, dy up to kWidth - 1 behind the last.
  float u[kWidth - 1 + kAtOnce][kChannels], dy[kAtOnce + kWidth - 1][kChannels];
  load_filters(filter, a.kernel, d, a.W);
  // What a position t gets: the products with dy, and from the final state.
  const auto gradient = [&](float(&du)[kChannels], const float(*after)[kChannels], int t) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const int row = t - (a.L - a.W);
      du[c] = a.dfinal_state.data && row >= 0 ? load_global(a.dfinal_state.row(b, 0, row) + d + c) : 0;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (i < a.W) du[c] += filter[kWidth - 1 - i][c] * after[i][c];
      }
    }
  };
#pragma unroll
  for (int i = 0; i < kWidth - 1; ++i) {
    load_input(u[i], a.u, a.initial_state, b, place.begin - (kWidth - 1) + i, d, a.W);
    load_dy(dy[i], a, b, place.begin + i, d);
  }
  if (place.begin == 0 && a.dinitial_state.data) {
    for (int t = -a.W; t < 0; ++t) {
      float after[kWidth][kChannels] = {}, du[kChannels];
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        if (t + i >= 0) load_dy(after[i], a, b, t + i, d);
      }
      gradient(du, after, t);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) store_global(a.dinitial_state.row(b, 0, a.W + t) + d + c, du[c]);
    }
  }
  for (int first = place.begin; first < place.end; first += kAtOnce) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < place.end) load(u[kWidth - 1 + i], a.u.row(b, 0, first + i) + d);
      load_dy(dy[kWidth - 1 + i], a, b, first + kWidth - 1 + i, d);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= place.end) break;
      float du[kChannels];
      gradient(du, &dy[i], first + i);
      store(a.du.row(b, 0, first + i) + d, du);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
#pragma unroll
        for (int c = 0; c < kChannels; ++c) sum[j][c] += dy[i][c] * u[i + j][c];
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth - 1; ++i) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) u[i][c] = u[kAtOnce + i][c], dy[i][c] = dy[kAtOnce + i][c];
    }
  }
  float* to = sums + ((std::int64_t(b) * pieces_of(a.L, kRun) + place.begin / kRun) * a.D + d) * a.W;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      if (const int at = j - (kWidth - a.W); at >= 0) store_global(to + c * a.W + at, sum[j][c]);
    }
  }
}

/// Adds up the sums of all runs. Grid ceil(elements / kThreads).
/// @param elements D W
__global__ void __launch_bounds__(kThreads)
    add_runs_kernel(const float* sums, float* dkernel, std::int64_t elements, std::int64_t runs) {
  const std::int64_t at = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elements) return;
  float sum = 0;
#pragma unroll 8
  for (std::int64_t run = 0; run < runs; ++run) sum += load_global(&sums[run * elements + at]);
  store_global(&dkernel[at], sum);
}

template <int kChannels, class T>
void start(const BackwardArguments<T>& a, float* sums) {
  const auto blocks = unsigned(blocks_of(a.B, a.L, a.D, kChannels, kRun));
  a.W <= 4 ? launch(gradients_kernel<4, kChannels, T>, {blocks, kThreads}, a, sums)
           : launch(gradients_kernel<kMaxWidth, kChannels, T>, {blocks, kThreads}, a, sums);
}

}  // namespace

template <class T>
void dispatch_backward(const BackwardArguments<T>& a) {
  const std::int64_t elements = std::int64_t(a.D) * a.W, runs = runs_of(a);
  float* sums = workspace<float>("short_convolution --backward: sums", std::size_t(runs * elements));
  const auto start_gradients = [&] {
    if constexpr (sizeof(T) == 2) {
      if (has_groups<2>(a.u, a.D) && has_groups<2>(a.dy, a.D) && has_groups<2>(a.du, a.D)) return start<2>(a, sums);
    }
    start<1>(a, sums);
  };
  start_gradients();
  launch(add_runs_kernel, {unsigned(ceil_div(elements, kThreads)), kThreads}, sums, a.dkernel, elements, runs);
}
template void dispatch_backward(const FloatBackwardArguments&);
template void dispatch_backward(const Bf16BackwardArguments&);

template <class T>
std::string dispatch_backward_unsupported(const BackwardArguments<T>& a) {
  if (a.W > kMaxWidth) return "W > 8: the windows are held in registers";
  if (a.L > INT_MAX - kRun) return "L > 2^31 - 1 - a run: positions are counted in int";
  if (blocks_of(a.B, a.L, a.D, 1, kRun) > INT_MAX) return "more than 2^31 - 1 blocks: the grid";
  return "";
}
template std::string dispatch_backward_unsupported(const FloatBackwardArguments&);
template std::string dispatch_backward_unsupported(const Bf16BackwardArguments&);

template <class T>
std::int64_t dispatch_backward_memory(const BackwardArguments<T>& a) {
  return std::int64_t(sizeof(float)) * runs_of(a) * a.D * a.W;
}
template std::int64_t dispatch_backward_memory(const FloatBackwardArguments&);
template std::int64_t dispatch_backward_memory(const Bf16BackwardArguments&);

}  // namespace tutorial::short_convolution
