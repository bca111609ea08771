#pragma once
/// @file
/// The channels that a thread computes, and where it works. Neighbouring lanes have neighbouring channels, so that a warp
/// reads 128 bytes of a row that lie side by side.

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/memory.cuh"
#include "common/device/pack.cuh"
#include "common/view.hpp"

namespace tutorial::short_convolution {

constexpr int kMaxWidth = 8;
constexpr int kThreads = 128;  // of a block

/// How many pieces hold `count`: ceil_div() for kernels, too.
TUTORIAL_HOST_DEVICE constexpr int pieces_of(int count, int piece) {
  return (count - 1) / piece + 1;
}

/// Whether every row begins at a multiple of 4 bytes and has whole pairs of bf16.
template <class T>
bool has_pairs(const View<T>& x, int D) {
  return D % 2 == 0 && x.stride_b % 2 == 0 && x.stride_l % 2 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 4 == 0;
}

/// Reads kChannels neighbouring elements of a row as fp32.
/// @tparam kChannels 1, or 2 of bf16 at an address that is a multiple of 4 bytes
template <int kChannels, class T>
__device__ __forceinline__ void load(float (&x)[kChannels], const T* from) {
  if constexpr (kChannels == 2) {
    const float2 both = unpack(load_global(reinterpret_cast<const std::uint32_t*>(from)));
    x[0] = both.x, x[1] = both.y;
  } else {
    x[0] = float(load_global(from));
  }
}

template <int kChannels, class T>
__device__ __forceinline__ void store(T* to, const float (&x)[kChannels]) {
  if constexpr (kChannels == 2) {
    store_global(reinterpret_cast<std::uint32_t*>(to), pack(x[0], x[1]));
  } else {
    store_global(to, T(x[0]));
  }
}

/// What a thread computes: a run of positions of some channels.
template <int kChannels>
struct Place {
  int b, begin, end;  ///< batch entry; first position of the run, and the one behind it
  int d;              ///< the first of the channels
  bool exists;        ///< whether these channels exist

  /// @param run positions of a run
  __device__ __forceinline__ Place(int L, int D, int run) {
    const int tiles = pieces_of(D, kThreads * kChannels), runs = pieces_of(L, run);
    const std::int64_t block = blockIdx.x;
    d = (int(block % tiles) * kThreads + int(threadIdx.x)) * kChannels;
    begin = int(block / tiles % runs) * run;
    end = begin + run < L ? begin + run : L;
    b = int(block / tiles / runs);
    exists = d < D;
  }
};

/// Blocks of a launch.
inline std::int64_t blocks_of(int B, int L, int D, int channels, int run) {
  return std::int64_t(B) * pieces_of(L, run) * pieces_of(D, kThreads * channels);
}

/// The filters of the thread's channels, in the last W places.
template <int kWidth, int kChannels>
__device__ __forceinline__ void load_filters(float (&filter)[kWidth][kChannels], const float* from, int d, int W) {
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      const int at = j - (kWidth - W);
      filter[j][c] = at >= 0 ? load_global(&from[std::int64_t(d + c) * W + at]) : 0;
    }
  }
}

/// u at position t, which may lie before the first.
template <int kChannels, class T>
__device__ __forceinline__ void load_input(float (&x)[kChannels], const View<const T>& u,
                                           const View<const float>& initial_state, int b, int t, int d, int W) {
  if (t >= 0) return load(x, u.row(b, 0, t) + d);
#pragma unroll
  for (int c = 0; c < kChannels; ++c) {
    x[c] = initial_state.data && t >= -W ? load_global(initial_state.row(b, 0, W + t) + d + c) : 0;
  }
}

}  // namespace tutorial::short_convolution
