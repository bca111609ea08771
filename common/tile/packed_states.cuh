#pragma once
/// @file
/// The states that segments of packed sequences start from and end with.

#include <cuda_runtime.h>

#include "common/device/memory.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/packed_segments.cuh"

namespace tutorial::tile {
namespace {

/// Of an empty sequence: the block's columns of the initial state become those of the final state.
template <class Arguments, class Shape>
__device__ __forceinline__ void hand_state_on(const Arguments& a, const PackedPart<Shape>& part) {
  if (a.final_state.data == nullptr) return;
  for (int i = int(threadIdx.x); i < a.Dk * part.columns; i += int(blockDim.x)) {
    const int d = i / part.columns, j = part.first_column + i % part.columns;
    const float* from = a.initial_state.data ? a.initial_state.row(part.sequence, part.h, d) + j : nullptr;
    store_global(a.final_state.row(part.sequence, part.h, d) + j, from ? load_global(from) : 0.0f);
  }
}

/// The state that a segment starts from, from the block's first column on, and the elements from row to row. Null: zeros.
template <class Arguments, class Shape>
__device__ __forceinline__ ConstRows start_of(const Arguments& a, const PackedPart<Shape>& part,
                                              const PackedPlan& plan) {
  if (part.start >= 0) return {plan.starts + part.state(extents_of(a), part.start), a.Dv};
  return {a.initial_state.data ? a.initial_state.row(part.sequence, part.h, 0) + part.first_column : nullptr,
          a.initial_state.stride_l};
}

}  // namespace
}  // namespace tutorial::tile
