#pragma once
/// @file
/// The segments of packed sequences: the list of them, longest first, and the part of it that a block walks.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/packed_plan.hpp"

namespace tutorial::tile {
namespace {

inline constexpr int kListThreads = 256;
inline constexpr int kLengths = 64;  // that the list tells apart

/// Writes the list: entry i has (sequence, begin, end, start), where the state before the segment is that after segment
/// `start`, or the sequence's initial state if it is -1. The first `states` entries are segments that another one
/// follows. They are all equally long, and there are fewer of a sequence from position `begin` on than of all positions
/// before `end`. So a sequence finds its entries without knowing the others, from begin / length on, and an entry
/// between those of two sequences has sequence -1. Behind them are the last segments of all sequences, longest first.
/// One block.
__global__ void __launch_bounds__(kListThreads)
    list_segments_kernel(const std::int32_t* cu_seqlens, PackedPlan plan, int4* list) {
  __shared__ int next[kLengths + 1];  // the place of the next segment of each length, from the longest on
  const auto for_each_sequence = [&](auto f) {
    for (int n = int(threadIdx.x); n < plan.sequences; n += kListThreads) {
      const int begin = load_global(cu_seqlens + n), end = load_global(cu_seqlens + n + 1);
      const int before_last = max(end - begin - 1, 0) / plan.length, last = begin + before_last * plan.length;
      int* place = next + kLengths - int(std::int64_t(end - last) * kLengths / plan.length);
      f(n, begin, end, before_last, last, place);
    }
  };
  for (int i = int(threadIdx.x); i <= kLengths; i += kListThreads) next[i] = 0;
  __syncthreads();
  for_each_sequence([](int, int, int, int, int, int* place) { atomicAdd(place, 1); });
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = plan.states;
    for (int& count : next) {
      const int here = count;
      count = sum;
      sum += here;
    }
  }
  __syncthreads();
  for_each_sequence([&](int n, int begin, int end, int before_last, int last, int* place) {
    const int first = begin / plan.length;
    for (int i = 0; i < before_last; ++i) {
      const int t = begin + i * plan.length;
      store_global(list + first + i, {n, t, t + plan.length, i == 0 ? -1 : first + i - 1});
    }
    for (int i = first + before_last; i < min(end / plan.length, plan.states); ++i)
      store_global(list + i, {-1, 0, 0, -1});
    store_global(list + atomicAdd(place, 1), {n, last, end, before_last == 0 ? -1 : first + before_last - 1});
  });
}

/// Starts the kernel that writes the plan's list, which it returns.
inline const int4* list_segments(const std::int32_t* cu_seqlens, const PackedPlan& plan) {
  int4* list = workspace<int4>("packed sequences: segments", std::size_t(plan.entries()));
  launch(list_segments_kernel, {1, kListThreads}, cu_seqlens, plan, list);
  return list;
}

/// A grid of all blocks of the list's first `entries` segments, those of a segment side by side.
template <class Shape>
dim3 packed_grid(const Extents& e, int entries) {
  return dim3(unsigned(entries) * unsigned(e.H) * ((unsigned(e.Dv) - 1) / Shape::kDv + 1));
}

}  // namespace

/// A block's segment, head and columns in this grid.
template <class Shape>
struct PackedPart {
  static constexpr int b = 0;  ///< batch entry
  int entry;                   ///< of the list
  int sequence, begin, end;    ///< the segment
  int start;                   ///< the entry of the segment before it, or -1
  int h;                       ///< head
  int first_column, columns;   ///< the columns of Dv that exist, up to Shape::kDv

  /// That of the calling block.
  __device__ __forceinline__ PackedPart(const Extents& e, const PackedPlan& plan) {
    const int tiles = (e.Dv - 1) / Shape::kDv + 1, block = int(blockIdx.x);
    entry = block / tiles / e.H;
    h = block / tiles % e.H;
    first_column = block % tiles * Shape::kDv;
    columns = min(Shape::kDv, e.Dv - first_column);
    const int4 segment = load_global(plan.segments + entry);
    sequence = segment.x, begin = segment.y, end = segment.z, start = segment.w;
  }

  /// Where the block's columns of the state after entry i stand among those of the plan.
  __device__ __forceinline__ std::int64_t state(const Extents& e, int i) const {
    return (std::int64_t(i) * e.H + h) * e.Dk * e.Dv + first_column;
  }
};

}  // namespace tutorial::tile
