#pragma once
/// @file
/// Packed sequences one after the other, each as a problem of its own: for what no kernel on packed sequences supports.

#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "common/device/error.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/stream.hpp"
#include "common/packed_sequences.hpp"

namespace tutorial::tile {
namespace {

inline constexpr int kHandOnThreads = 256, kHeadsAtOnce = 1024;

/// What an empty sequence hands on: its initial state, or the gradient of its final state.
template <class Arguments>
TUTORIAL_HOST_DEVICE const View<const float>& handed_on(const Arguments& a) {
  if constexpr (requires { a.dfinal_state; }) {
    return a.dfinal_state;
  } else {
    return a.initial_state;
  }
}

/// What it is handed on to: its final state, or the gradient of its initial state.
template <class Arguments>
TUTORIAL_HOST_DEVICE const View<float>& handed_to(const Arguments& a) {
  if constexpr (requires { a.dinitial_state; }) {
    return a.dinitial_state;
  } else {
    return a.final_state;
  }
}

/// Hands the states of empty sequences on. Grid (N, heads at a time).
/// @param p its tensors with positions are not used
template <class Arguments>
__global__ void __launch_bounds__(kHandOnThreads) hand_on_kernel(PackedSequences<Arguments> p) {
  const Arguments& a = p.all;
  const View<const float>& from = handed_on(a);
  const int n = int(blockIdx.x);
  if (load_global(p.cu_seqlens + n) < load_global(p.cu_seqlens + n + 1)) return;
  for (int head = int(blockIdx.y); head < a.B * a.H; head += int(gridDim.y)) {
    const int entry = n * a.B + head / a.H, h = head % a.H;
    for (int i = int(threadIdx.x); i < a.Dk * a.Dv; i += kHandOnThreads) {
      const int d = i / a.Dv, j = i % a.Dv;
      store_global(handed_to(a).row(entry, h, d) + j, from.data ? load_global(from.row(entry, h, d) + j) : 0.0f);
    }
  }
}

/// Starts it, if the states are asked for.
template <class Arguments>
void hand_states_on(const PackedSequences<Arguments>& p) {
  const dim3 grid(unsigned(p.N), unsigned(std::min(p.all.B * p.all.H, kHeadsAtOnce)));
  if (handed_to(p.all).data) launch(hand_on_kernel<Arguments>, {grid, kHandOnThreads}, p);
}

/// Calls f with the arguments of each sequence that is not empty, and starts a kernel for the others. The host waits for
/// `cu_seqlens`, which a CUDA graph that is being captured refuses.
/// @throws CudaError if a copy or a launch is refused
template <class Arguments, class F>
void for_each_sequence(const PackedSequences<Arguments>& p, F f) {
  std::vector<std::int32_t> offsets(std::size_t(p.N) + 1);
  check(cudaMemcpyAsync(offsets.data(), p.cu_seqlens, offsets.size() * sizeof(std::int32_t), cudaMemcpyDeviceToHost,
                        current_stream()));
  check(cudaStreamSynchronize(current_stream()));
  for (int n = 0; n < p.N; ++n) {
    const int length = offsets[std::size_t(n) + 1] - offsets[std::size_t(n)];
    if (length > 0) f(sequence_of(p.all, n, offsets[std::size_t(n)], length));
  }
  hand_states_on(p);
}

}  // namespace
}  // namespace tutorial::tile
