#pragma once
/// @file
/// The heads that the blocks of a kernel walk, each from the first position to the last one: those of batch entries, or
/// those of packed sequences. A kernel takes one of both as a parameter, so that each has code of its own.
///
/// With packed sequences the kernel's arguments are made those of the block's sequence at first. Then all code that takes
/// views sees a problem with L of its own. Only bulk copies do not: their tensor maps know where all positions end. So they
/// add first_position(), and the last chunk of a sequence is loaded as in common/tile/rows_of_sequence.cuh.

#include <cuda_runtime.h>

#include "common/device/memory.cuh"
#include "common/packed_sequences.hpp"
#include "common/tile/packed_segments.cuh"

namespace tutorial::delta_rule {

/// Grid (tiles of Dv, H, B).
struct BatchHeads {
  static constexpr bool kArePacked = false;

  static __device__ __forceinline__ int batch(int) { return int(blockIdx.z); }
  static __device__ __forceinline__ int head() { return int(blockIdx.y); }
  /// The position of the tensors at which the block's one begins.
  static __device__ __forceinline__ int first_position(int) { return 0; }
  /// Makes `a` the block's problem. Returns whether there is none.
  template <class Arguments>
  static __device__ __forceinline__ bool are_none(Arguments&) {
    return false;
  }
};

/// Grid (tiles of Dv, H, B N), the longest sequence first.
struct PackedHeads {
  static constexpr bool kArePacked = true;

  const int4* sequences;  ///< (number, begin, end, unused): tile::list_segments()

  /// @param B of the problem
  static __device__ __forceinline__ int batch(int B) { return int(blockIdx.z) % B; }
  static __device__ __forceinline__ int head() { return int(blockIdx.y); }
  __device__ __forceinline__ int first_position(int B) const { return sequence(B).y; }
  template <class Arguments>
  __device__ __forceinline__ bool are_none(Arguments& a) const {
    const int4 of_block = sequence(a.B);
    a = sequence_of(a, of_block.x, of_block.y, of_block.z - of_block.y);
    return a.L == 0;
  }

 private:
  __device__ __forceinline__ int4 sequence(int B) const { return load_global(sequences + int(blockIdx.z) / B); }
};

/// Hands columns of the initial state of an empty sequence on. All threads of a block call it.
/// @param a those of the sequence
template <class Arguments>
__device__ __forceinline__ void hand_state_on(const Arguments& a, int b, int h, int first_column, int columns) {
  if (a.final_state.data == nullptr) return;
  columns = min(columns, a.Dv - first_column);
  for (int i = int(threadIdx.x); i < a.Dk * columns; i += int(blockDim.x)) {
    const int d = i / columns, j = first_column + i % columns;
    const float* from = a.initial_state.data ? a.initial_state.row(b, h, d) + j : nullptr;
    store_global(a.final_state.row(b, h, d) + j, from ? load_global(from) : 0.0f);
  }
}

/// Starts the kernel that lists the sequences, the longest first.
template <class Arguments>
PackedHeads list_sequences(const PackedSequences<Arguments>& p) {
  return {tile::list_segments(p.cu_seqlens, {.columns = 64, .length = p.all.L, .states = 0, .sequences = p.N})};
}

}  // namespace tutorial::delta_rule
