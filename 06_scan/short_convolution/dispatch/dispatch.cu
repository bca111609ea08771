/// @file
/// `dispatch`: a short convolution is a window that moves over the positions.
///
/// Idea: a thread walks a run of positions of its channels and holds the last W inputs in registers. So each input is
/// read once, but for W - 1 before each run. Nothing goes through shared memory, since two threads share no more than
/// these. The inputs of eight positions are requested before the first of them is used.
///
///     in registers, W = 4:   u_t-3  u_t-2  u_t-1 | u_t  u_t+1  ...  u_t+7
///                            \_____ y_t _______________/
///
/// Shapes: u, y [B, L, D] in fp32 or bf16; kernel [D, W], states [B, W, D] in fp32; in device memory.
/// Thread mapping: one thread per channel, or per four channels of bf16, and run of 32 positions; a block has 128 threads
/// with neighbouring channels.
/// Resources: no shared memory.
/// Work: W multiply-adds per element.
/// Bytes: u and y once; for each 32 positions 3 of u once more, and the filter, both from the second-level cache.
/// Bound by: memory.
/// Requires: W <= 8.
/// Weakness: what layers do next, SiLU and the norm of q and k, is a pass over memory of its own.
/// Sources: Dao and Gu's `causal-conv1d` fuses SiLU, and swaps the roles of lanes where D lies outside of L.

#include <cuda_runtime.h>

#include <climits>

#include "06_scan/short_convolution.hpp"
#include "06_scan/short_convolution/columns.cuh"
#include "common/device/launch.cuh"

namespace tutorial::short_convolution {
namespace {

constexpr int kRun = 32;    // positions of a thread
constexpr int kAtOnce = 8;  // whose inputs are under way

/// Grid blocks_of().
/// @tparam kWidth at least W
template <int kWidth, int kChannels, class T>
__global__ void __launch_bounds__(kThreads) short_convolution_kernel(Arguments<T> a) {
  const Place<kChannels> place(a.L, a.D, kRun);
  if (!place.exists) return;
  const int b = place.b, d = place.d;
  float filter[kWidth][kChannels], window[kWidth - 1 + kAtOnce][kChannels];
  load_filters(filter, a.kernel, d, a.W);
#pragma unroll
  for (int i = 0; i < kWidth - 1; ++i) {
    load_input(window[i], a.u, a.initial_state, b, place.begin - (kWidth - 1) + i, d, a.W);
  }
  for (int first = place.begin; first < place.end; first += kAtOnce) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i < place.end) load(window[kWidth - 1 + i], a.u.row(b, 0, first + i) + d);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= place.end) break;
      float y[kChannels] = {};
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        if (j < kWidth - a.W) continue;  // zero times what is not finite would not be zero
#pragma unroll
        for (int c = 0; c < kChannels; ++c) y[c] += filter[j][c] * window[i + j][c];
      }
      store(a.y.row(b, 0, first + i) + d, y);
    }
#pragma unroll
    for (int i = 0; i < kWidth - 1; ++i) {
#pragma unroll
      for (int c = 0; c < kChannels; ++c) window[i][c] = window[kAtOnce + i][c];
    }
  }
  if (place.end == a.L && a.final_state.data) {
    for (int i = 0; i < a.W; ++i) {
      float x[kChannels];
      load_input(x, a.u, a.initial_state, b, a.L - a.W + i, d, a.W);
#pragma unroll
      for (int c = 0; c < kChannels; ++c) store_global(a.final_state.row(b, 0, i) + d + c, x[c]);
    }
  }
}

template <int kChannels, class T>
void start(const Arguments<T>& a) {
  const auto blocks = unsigned(blocks_of(a.B, a.L, a.D, kChannels, kRun));
  a.W <= 4 ? launch(short_convolution_kernel<4, kChannels, T>, {blocks, kThreads}, a)
           : launch(short_convolution_kernel<kMaxWidth, kChannels, T>, {blocks, kThreads}, a);
}

}  // namespace

template <class T>
void dispatch(const Arguments<T>& a) {
  if constexpr (sizeof(T) == 2) {
    if (has_groups<4>(a.u, a.D) && has_groups<4>(a.y, a.D)) return start<4>(a);
  }
  start<1>(a);
}
template void dispatch(const FloatArguments&);
template void dispatch(const Bf16Arguments&);

template <class T>
std::string dispatch_unsupported(const Arguments<T>& a) {
  if (a.W > kMaxWidth) return "W > 8: the window is held in registers";
  if (a.L > INT_MAX - kRun) return "L > 2^31 - 1 - a run: positions are counted in int";
  if (blocks_of(a.B, a.L, a.D, 1, kRun) > INT_MAX) return "more than 2^31 - 1 blocks: the grid";
  return "";
}
template std::string dispatch_unsupported(const FloatArguments&);
template std::string dispatch_unsupported(const Bf16Arguments&);

}  // namespace tutorial::short_convolution
