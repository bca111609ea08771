#pragma once
/// @file
/// The heads that the blocks of a kernel walk, each from the first position to the last one: those of batch entries, or
/// those of packed sequences. A kernel takes one of both as a parameter, so that each has code of its own.
///
/// With packed sequences the kernel's arguments are made those of the block's sequence at first. Then all code that takes
/// views sees a problem with L of its own. Only bulk copies do not: their tensor maps know where all positions end. So they
/// add first_position(), and the last chunk of a sequence is loaded as in common/tile/rows_of_sequence.cuh.

#include <cuda_runtime.h>

#include <cstdint>

#include "common/device/error.hpp"
#include "common/device/memory.cuh"
#include "common/device/stream.hpp"
#include "common/device/workspace.hpp"
#include "common/packed_sequences.hpp"
#include "common/tile/packed_chunks.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {

/// S = columns of the initial state, which may be absent. All threads of a warpgroup call.
template <int kDk, class Arguments>
__device__ __forceinline__ void load_initial_state(tile::WarpgroupState<kDk>& S, const Arguments& a, int b, int h,
                                                   int first_column, int columns) {
  tile::load_group_state<kDk>(S, a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr,
                              a.initial_state.stride_l, a.Dk, columns);
}

/// Grid (tiles of Dv, H, B).
struct BatchHeads {
  static constexpr bool kArePacked = false;

  /// The block's batch entry.
  static __device__ __forceinline__ int batch(int) { return int(blockIdx.z); }
  /// The block's head.
  static __device__ __forceinline__ int head() { return int(blockIdx.y); }
  /// The position of the tensors at which the block's one begins.
  static __device__ __forceinline__ int first_position() { return 0; }
  /// How many positions are walked before the first output.
  static __device__ __forceinline__ int warm_up() { return 0; }
  /// Makes `a` the block's problem, if there is one; returns whether there is. All threads of a block call.
  /// @param columns of Dv of a block
  template <class Arguments>
  static __device__ __forceinline__ bool begin(Arguments&, [[maybe_unused]] int columns) {
    return true;
  }
  /// S = columns of the state before the first position. All threads of a warpgroup call.
  template <int kDk, class Arguments>
  static __device__ __forceinline__ void load_start(tile::WarpgroupState<kDk>& S, const Arguments& a, int first_column,
                                                    int columns) {
    load_initial_state<kDk>(S, a, batch(a.B), head(), first_column, columns);
  }
};

/// Hands a block's columns of the initial state of an empty sequence on. All threads of a block call.
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

/// Grid (tiles of Dv, H, B N).
class SequenceHeads {
 public:
  static constexpr bool kArePacked = true;

  /// The block's batch entry. @param B of the problem
  static __device__ __forceinline__ int batch(int B) { return int(blockIdx.z) % B; }
  /// The block's head.
  static __device__ __forceinline__ int head() { return int(blockIdx.y); }
  /// The position of the tensors at which the block's one begins.
  __device__ __forceinline__ int first_position() const { return first_; }
  /// How many positions are walked before the first output.
  static __device__ __forceinline__ int warm_up() { return 0; }
  /// The number of the sequence's first chunk, where all chunks are prepared (common/tile/packed_chunks.cuh).
  __device__ __forceinline__ int first_chunk() const { return first_chunk_; }
  /// S = columns of the state before the first position. All threads of a warpgroup call.
  template <int kDk, class Arguments>
  static __device__ __forceinline__ void load_start(tile::WarpgroupState<kDk>& S, const Arguments& a, int first_column,
                                                    int columns) {
    load_initial_state<kDk>(S, a, batch(a.B), head(), first_column, columns);
  }

 protected:
  /// Makes `a` the problem of a sequence.
  template <class Arguments>
  __device__ __forceinline__ void begin_sequence(Arguments& a, int n, int begin, int end) {
    first_ = begin;
    first_chunk_ = begin / tile::kChunk + n;
    a = sequence_of(a, n, begin, end - begin);
  }

  int first_ = 0, first_chunk_ = 0;
};

/// Those of a list, the longest sequence first.
class PackedHeads : public SequenceHeads {
 public:
  /// @param list (number, begin, end, unused) of each sequence: tile::list_segments()
  explicit PackedHeads(const int4* list) : list_(list) {}

  template <class Arguments>
  __device__ __forceinline__ bool begin(Arguments& a, int columns) {
    const int b = batch(a.B);
    const int4 sequence = load_global(list_ + int(blockIdx.z) / a.B);
    begin_sequence(a, sequence.x, sequence.y, sequence.z);
    if (a.L == 0) hand_state_on(a, b, head(), int(blockIdx.x) * columns, columns);
    return a.L > 0;
  }

 private:
  const int4* list_;
};

/// Those that another kernel has left, which has handed the states of empty ones on.
class HeadsLeft : public SequenceHeads {
 public:
  /// @param cu_seqlens [N + 1]
  /// @param left [N, B, H]: not 0 for such a head
  HeadsLeft(const std::int32_t* cu_seqlens, const int* left) : cu_seqlens_(cu_seqlens), left_(left) {}

  template <class Arguments>
  __device__ __forceinline__ bool begin(Arguments& a, int) {
    if (load_global(left_ + std::int64_t(blockIdx.z) * a.H + head()) == 0) return false;
    const int n = int(blockIdx.z) / a.B;
    begin_sequence(a, n, load_global(cu_seqlens_ + n), load_global(cu_seqlens_ + n + 1));
    return true;
  }

 private:
  const std::int32_t* cu_seqlens_;
  const int* left_;
};

/// Flags of heads of sequences, [N, B, H], set to 0 on current_stream(), for a kernel that leaves some to another one.
/// @throws CudaError if memory runs out
template <class Arguments>
int* none_left(const PackedSequences<Arguments>& p) {
  const std::size_t count = std::size_t(p.N) * std::size_t(p.all.B) * std::size_t(p.all.H);
  int* left = workspace<int>("packed sequences: heads that are left", count);
  check(cudaMemsetAsync(left, 0, count * sizeof(int), current_stream()));
  return left;
}

/// Starts the kernel that lists the sequences, the longest first.
template <class Arguments>
PackedHeads list_sequences(const PackedSequences<Arguments>& p) {
  const tile::PackedPlan plan{.columns = 64, .length = p.all.L, .states = 0, .sequences = p.N};
  return PackedHeads(tile::list_segments(p.cu_seqlens, plan));
}

}  // namespace tutorial::delta_rule
