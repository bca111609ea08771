/// @file
/// The walk of ../../linear_attention/dispatch/hopper_walk.cuh in the segments of packed sequences, as ../1_packed.cu
/// explains them. Tiles come by bulk copies, which begin at any position. The rows of a sequence's last chunk that belong
/// to the next one arrive with it, and the warp that loads clears them.

#include "02_chunkwise/linear_attention_packed/dispatch/walks.hpp"

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention/dispatch/hopper_walk.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/carry_sequences.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/packed_states.cuh"

namespace tutorial::linear_attention {
namespace {

/// A block's part as the kernels of one batch entry know it.
struct Part {
  int b, h, head, segment, begin, end, first_column, columns;

  /// @param number of the state that the block stores, among those of all heads and segments
  template <class Shape>
  __device__ __forceinline__ Part(const PackedPart<Shape>& part, int number)
      : b(0),
        h(part.h),
        head(number),
        segment(0),
        begin(part.begin),
        end(part.end),
        first_column(part.first_column),
        columns(part.columns) {}
};

/// Kernel 1, for every segment that another one follows. Grid packed_grid() of them.
/// @param states [plan.states, H, Dk, Dv]
template <class Shape>
__global__ void __launch_bounds__(kStatesBlock<false>, 2)
    packed_states_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, PackedPlan plan, float* states) {
  const PackedPart<Shape> packed(extents_of(a), plan);
  if (packed.sequence < 0) return;
  const LaunchPlan one_state{.segments = 2};  // of each number
  compute_segment_state<Shape, false>(a, maps, one_state, Part(packed, packed.entry * a.H + packed.h), Forwards(),
                                      states, nullptr);
}

/// Kernel 3. Grid packed_grid() of all segments.
template <class Shape>
__global__ void __launch_bounds__(kBlock<false>, 1)
    packed_walk_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, PackedPlan plan) {
  const PackedPart<Shape> packed(extents_of(a), plan);
  if (packed.sequence < 0) return;
  if (packed.begin == packed.end) return hand_state_on(a, packed);
  __shared__ Barrier arrived;
  if (threadIdx.x == 0) arrived.init(1);
  const int n = packed.sequence, h = packed.h, first_column = packed.first_column;
  const bool is_last = packed.entry >= plan.states;
  walk_segment<Shape, false>(
      a, maps, LaunchPlan(), Normalizer(), Part(packed, 0), is_last ? packed.end : -1, ForwardsInSequence{{}, &arrived},
      [&](WarpgroupState<Shape::kDk>& S) {
        const float* start = a.initial_state.data ? a.initial_state.row(n, h, 0) + first_column : nullptr;
        if (packed.start >= 0) start = plan.starts + packed.state(extents_of(a), packed.start);
        load_group_state<Shape::kDk>(S, start, packed.start >= 0 ? a.Dv : a.initial_state.stride_l, a.Dk,
                                     packed.columns);
      },
      [&](WarpgroupState<Shape::kDk>& S) {
        store_group_state<Shape::kDk>(a.final_state.row(n, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                      packed.columns);
      });
}

template <class Shape>
void launch_packed(const PackedBf16Arguments& p, PackedPlan plan) {
  const Bf16Arguments& a = p.all;
  const Extents extents = extents_of(a);
  const ChunkMaps maps = chunk_maps(a);
  plan.segments = list_segments(p.cu_seqlens, plan);
  if (plan.states > 0) {
    float* states =
        workspace<float>("linear_attention: states", std::size_t(plan.states) * a.H * std::size_t(a.Dk) * a.Dv);
    launch(packed_states_kernel<Shape>,
           {packed_grid<Shape>(extents, plan.states), kStatesBlock<false>, kPipelineDepth * StateTiles<Shape>::kBytes},
           a, maps, plan, states);
    carry_sequences(a.initial_state, plan, extents, NoDecay(), states);
    plan.starts = states;
  }
  launch(packed_walk_kernel<Shape>,
         {packed_grid<Shape>(extents, plan.entries()), kBlock<false>, kSharedBytes<Shape, false>}, a, maps, plan);
}

}  // namespace

void hopper_packed(const PackedBf16Arguments& p, PackedPlan plan) {
  p.all.Dk <= 64 ? launch_packed<PanelShape<64, 64>>(p, plan) : launch_packed<PanelShape<128, 64>>(p, plan);
}

}  // namespace tutorial::linear_attention
