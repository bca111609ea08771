#pragma once
/// @file
/// The channels that a thread computes, and where it works. Neighbouring lanes have neighbouring channels, so that a warp
/// reads 256 bytes of bf16 that lie side by side, or 128 of fp32.

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

/// Whether all rows are made of groups of kChannels neighbouring elements that one access reads or writes.
template <int kChannels, class T>
bool has_groups(const View<T>& x, int D) {
  return D % kChannels == 0 && x.stride_b % kChannels == 0 && x.stride_l % kChannels == 0 &&
         reinterpret_cast<std::uintptr_t>(x.data) % (kChannels * sizeof(T)) == 0;
}

/// Reads a group as fp32.
/// @tparam kChannels 1, or 2 or 4 of bf16
template <int kChannels, class T>
__device__ __forceinline__ void load(float (&x)[kChannels], const T* from) {
  const auto put = [&](int c, std::uint32_t bits) {
    const float2 both = unpack(bits);
    x[c] = both.x, x[c + 1] = both.y;
  };
  if constexpr (kChannels == 4) {
    const uint2 bits = load_global(reinterpret_cast<const uint2*>(from));
    put(0, bits.x), put(2, bits.y);
  } else if constexpr (kChannels == 2) {
    put(0, load_global(reinterpret_cast<const std::uint32_t*>(from)));
  } else {
    x[0] = float(load_global(from));
  }
}

/// Writes a group, rounded to T.
template <int kChannels, class T>
__device__ __forceinline__ void store(T* to, const float (&x)[kChannels]) {
  if constexpr (kChannels == 4) {
    store_global(reinterpret_cast<uint2*>(to), make_uint2(pack(x[0], x[1]), pack(x[2], x[3])));
  } else if constexpr (kChannels == 2) {
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
