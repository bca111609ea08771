#pragma once
/// @file
/// Walks in runs of segments. A run begins with the state that the run before it has left, so no kernel has to compute
/// states before the walks.
///
/// A block takes its number from a counter, because CUDA does not say in which order blocks start. The first runs of
/// all walks have the lowest numbers, then the second runs, and so on. So a block waits only for blocks that have
/// started before it. If there are at least as many walks as multiprocessors, the run before has usually ended when a
/// block begins, and the block does not wait at all.
///
/// At the end of each segment the walk of dq writes S to memory, and that of dv writes dS / scale. The sum for dg starts
/// anew from both. The states at the end of a run are also what the next run begins with. The walk of dk holds dS, too:
/// it begins with what the blocks of dv have written.

#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla_backward/cut.hpp"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "common/device/atomic.cuh"
#include "common/device/warp.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {
namespace {

/// How the walks are cut, and what their blocks share.
struct Runs {
  static constexpr int kWriters = 8;  ///< warps that write a state, at most: four for each 64 of up to 128 columns

  Cut cut;
  float *S = nullptr, *dS = nullptr;  ///< [B, H, segments - 1, Dk, Dv], each in the order of its walk; dS / scale
  unsigned* counter = nullptr;        ///< blocks that have begun; behind it a flag per state and warp that writes it

  /// The number of words that begin as 0: 0 if no run waits for another.
  std::int64_t words(std::int64_t heads) const {
    return cut.are_given || cut.runs() == 1 ? 0 : 1 + 2 * heads * (cut.plan.segments - 1) * kWriters;
  }

  /// The number of a block. Called by one thread.
  __device__ __forceinline__ int take() const { return counter ? int(atomicAdd(counter, 1u)) : int(blockIdx.x); }
  /// Where a state lies. @param is_S or dS @param place of the state, [B, H, segments - 1]
  __device__ __forceinline__ float* state(bool is_S, std::int64_t place, int elements) const {
    return (is_S ? S : dS) + place * elements;
  }
  /// The flags of its writers.
  __device__ __forceinline__ unsigned* flags(bool is_S, int heads, std::int64_t place) const {
    return counter + 1 + ((is_S ? 0 : std::int64_t(heads) * (cut.plan.segments - 1)) + place) * kWriters;
  }
};

/// The part of the walks that a block has.
struct RunPart {
  int which;                  ///< the number of the gradient
  int b, h, head;             ///< batch entry, head of it, head of all: b H + h
  int first, last;            ///< the run's segments in the order of the walk
  int begin, chunks;          ///< the run's first position in the sequence, its chunks
  int tile;                   ///< of 64 columns of the gradient
  int first_column, columns;  ///< the columns that exist

  /// @param block its number @param gradients all three
  template <class Gradients>
  __device__ __forceinline__ RunPart(const Runs& runs, int block, const Gradients& gradients) {
    const auto tiles = [&](int i) { return (gradients[i].gradient.a.Dv - 1) / 64 + 1; };
    const Bf16Arguments& a = gradients[0].gradient.a;
    const int each = tiles(0) + tiles(1) + tiles(2), walks = a.B * a.H * each, walk = block % walks;
    head = walk / each;
    b = head / a.H;
    h = head % a.H;
    tile = walk % each;
    for (which = 0; tile >= tiles(which); ++which) tile -= tiles(which);
    first = block / walks * runs.cut.each;
    last = min(first + runs.cut.each, runs.cut.plan.segments) - 1;
    const int lowest = gradients[which].gradient.is_reversed ? runs.cut.plan.segments - 1 - last : first;
    begin = lowest * runs.cut.plan.length;
    chunks = (min((last - first + 1) * runs.cut.plan.length, a.L - begin) - 1) / tile::kChunk + 1;
    first_column = tile * 64;
    columns = min(64, gradients[which].gradient.a.Dv - first_column);
  }
  /// The number of chunks of a segment. @param order its number in the order of the walk
  static __device__ __forceinline__ int chunks_of(const Runs& runs, int L, int order, bool is_reversed) {
    const int segment = is_reversed ? runs.cut.plan.segments - 1 - order : order;
    return (min(runs.cut.plan.length, L - segment * runs.cut.plan.length) - 1) / tile::kChunk + 1;
  }
};

/// Waits until all warps that write a state have done so. Called by all lanes.
__device__ __forceinline__ void wait_for_state(const unsigned* flags, int writers) {
  if (int(lane_index()) < writers) wait_until(flags + lane_index(), [](unsigned flag) { return flag != 0; });
  __syncwarp();
}

/// S = a state that other blocks may have written in the same kernel: as tile::load_group_state().
template <int kDk>
__device__ __forceinline__ void load_written_state(tile::WarpgroupState<kDk>& S, const float* state,
                                                   tile::StateStrides stride, int Dk, int columns) {
#pragma unroll
  for (float& element : S) element = 0;
  tile::for_each_state_element<kDk>(S, state, stride, Dk, columns,
                                    [](float& element, const float* address) { element = *address; });
}

}  // namespace
}  // namespace tutorial::simple_gla
