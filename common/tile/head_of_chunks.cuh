#pragma once
/// @file
/// A head's chunks as a block sees them, of sequences of one length or of one of packed sequences.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/ceil_div.hpp"
#include "common/tile/chunk_threads.cuh"
#include "common/tile/packed_plan.hpp"

namespace tutorial::tile {

/// Chunk n of the head is number first + n of all that kernels leave in memory for each other.
struct HeadOfChunks {
  int b, h;
  int N;               ///< chunks
  std::int64_t first;  ///< number of the first one
  std::int64_t head;   ///< number of the head, or of the head's sequence

  /// Where all heads have N chunks. @param H heads of a batch entry
  __device__ __forceinline__ HeadOfChunks(int b, int h, int H, int N)
      : b(b), h(h), N(N), first((std::int64_t(b) * H + h) * N), head(std::int64_t(b) * H + h) {}
  /// Of sequence n of packed ones, whose chunks are numbered as in packed_chunks.cuh.
  /// @param all numbers of a head's chunks @param begin,end positions of the sequence
  __device__ __forceinline__ HeadOfChunks(int b, int h, int H, int all, int n, int sequences, int begin, int end)
      : b(b),
        h(h),
        N((end - begin - 1) / kChunk + 1),
        first((std::int64_t(b) * H + h) * all + begin / kChunk + n),
        head((std::int64_t(b) * H + h) * sequences + n) {}
};

/// A plan in which each of packed sequences is one segment: for the list of them, the longest first.
inline PackedPlan whole_sequences(int L, int sequences) {
  return {kChunk, ceil_div(L, kChunk) * kChunk, 0, sequences};
}

}  // namespace tutorial::tile
