#pragma once
/// @file
/// The chunks of packed sequences, numbered for kernels that prepare each chunk by itself and for what they leave in
/// memory. The chunk of sequence n that begins at position t has number t / 64 + n. These numbers rise from chunk to chunk,
/// since at a border either t / 64 or n does, and there are packed_chunks() of them. Some have no chunk.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/memory.cuh"
#include "common/device/warp.cuh"
#include "common/tile/chunk_threads.cuh"
#include "common/tile/extents.hpp"

namespace tutorial::tile {

/// How many numbers there are.
inline int packed_chunks(const Extents& e, int sequences) {
  return (e.L - 1) / kChunk + sequences;
}

/// A chunk of a sequence.
struct PackedChunk {
  int sequence;
  int begin, end;  ///< its first position, and where the sequence ends; the same where the number has no chunk

  /// The chunk with a number. All lanes of a warp call. In each step they look at 32 sequences, which leaves 1 in 32.
  __device__ __forceinline__ PackedChunk(const std::int32_t* cu_seqlens, int sequences, int number) {
    int first = 0, count = sequences;  // the sequence is one of these
    while (count > 1) {
      const int step = (count - 1) / 32 + 1, i = int(lane_index()) * step, n = first + i;
      const bool begins = i < count && load_global(cu_seqlens + n) / kChunk + n <= number;
      const int before = (__popc(__ballot_sync(kAllLanes, begins)) - 1) * step;
      first += before, count = min(step, count - before);
    }
    sequence = first;
    const int its_begin = load_global(cu_seqlens + first);
    end = load_global(cu_seqlens + first + 1);
    begin = min(its_begin + (number - its_begin / kChunk - first) * kChunk, end);
  }
};

}  // namespace tutorial::tile
