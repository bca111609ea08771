#pragma once
/// @file
/// How much of a segment the kernel for its state has to read (bounded_segments.cu has the idea).

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/segment_starts.cuh"
#include "common/device/memory.cuh"
#include "common/tile/warm_up.cuh"

namespace tutorial::fused_gla {
namespace {

/// The last chunks of a segment that forget, or the segment. To look at the gates of a chunk takes about as long as the
/// chunk of the state that it may save. So of a short segment the block looks at the later half alone, unless a state
/// would be carried over many segments, which takes longer than either.
template <class Shape>
struct BoundedBegin {
  static constexpr int kShort = 8, kMany = 16;  // chunks, and segments

  template <class Part>
  static __device__ __forceinline__ int of(const Bf16Arguments& a, const Part& part, int length) {
    const int chunks = length / kChunk, segments = (a.L - 1) / length + 1;
    const int limit = chunks <= kShort && segments < kMany ? (chunks + 1) / 2 : chunks;
    const int start = warm_up_start<kStateBlock<Shape>>(
        part.end, limit, a.Dk, [&](int t, int d) { return load_global(a.g.row(part.b, part.h, t) + d); });
    return max(start, part.begin);
  }
};

}  // namespace
}  // namespace tutorial::fused_gla
