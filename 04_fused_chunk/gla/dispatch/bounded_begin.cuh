#pragma once
/// @file
/// How much of a segment the kernel for its state has to read (bounded_segments.cu has the idea).

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/segment_starts.cuh"
#include "common/device/memory.cuh"
#include "common/tile/warm_up.cuh"

namespace tutorial::fused_gla {
namespace {

/// The last chunks of a segment that forget, or the segment.
template <class Shape>
struct BoundedBegin {
  template <class Part>
  static __device__ __forceinline__ int of(const Bf16Arguments& a, const Part& part, int length) {
    const int start = warm_up_start<kStateBlock<Shape>>(
        part.end, length / kChunk, a.Dk, [&](int t, int d) { return load_global(a.g.row(part.b, part.h, t) + d); });
    return max(start, part.begin);
  }
};

}  // namespace
}  // namespace tutorial::fused_gla
