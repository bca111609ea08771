/// @file
/// The kernels of hopper_walk.cuh for the operator itself.

#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/linear_attention/dispatch/hopper_walk.cuh"
#include "02_chunkwise/linear_attention/dispatch/in_segments.cuh"
#include "02_chunkwise/linear_attention/dispatch/walk.hpp"
#include "common/device/launch.cuh"

namespace tutorial::linear_attention {
namespace {

/// Kernel 1, for every segment but the last. The chunks of these segments are all whole. Grid (tiles of Dv of these
/// segments, H, B).
/// @param states,normalizers see compute_segment_state()
template <class Shape, bool kNormalized>
__global__ void __launch_bounds__(kStatesBlock<kNormalized>, 2)
    hopper_states_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan, float* states,
                         float* normalizers) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  compute_segment_state<Shape, kNormalized>(a, maps, plan, part, Forwards(), states, normalizers);
}

/// Kernel 3. Grid (tiles of Dv of all segments, H, B).
template <class Shape, bool kNormalized>
__global__ void __launch_bounds__(kBlock<kNormalized>, 1)
    hopper_walk_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan,
                       Normalizer normalizer) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns;
  walk_segment<Shape, kNormalized>(
      a, maps, plan, normalizer, part, a.L, Forwards(),
      [&](WarpgroupState<Shape::kDk>& S) {
        // This does not use BlockPart::start() and its columns, because with them the compiler spills a register.
        const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) : nullptr;
        std::int64_t stride_row = a.initial_state.stride_l;
        if (part.segment > 0) {
          start = plan.starts + (std::int64_t(part.head) * (plan.segments - 1) + part.segment - 1) * a.Dk * a.Dv;
          stride_row = a.Dv;
        }
        load_group_state<Shape::kDk>(S, start ? start + first_column : nullptr, stride_row, a.Dk, a.Dv - first_column);
      },
      [&](WarpgroupState<Shape::kDk>& S) {
        store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                      columns);
      });
}

template <class Shape, bool kNormalized>
void launch_walk(const Bf16Arguments& a, const LaunchPlan& plan, const Normalizer& normalizer) {
  const Extents extents = extents_of(a);
  const ChunkMaps maps = chunk_maps(a);
  in_segments<kNormalized>(
      a, plan, normalizer,
      [&](int count, float* states, float* sums_of_k) {
        launch(hopper_states_kernel<Shape, kNormalized>,
               {grid_of<Shape>(extents, count), kStatesBlock<kNormalized>, kPipelineDepth * StateTiles<Shape>::kBytes},
               a, maps, plan, states, sums_of_k);
      },
      [&](const LaunchPlan& started, const Normalizer& z) {
        launch(hopper_walk_kernel<Shape, kNormalized>,
               {grid_of<Shape>(extents, plan.segments), kBlock<kNormalized>, kSharedBytes<Shape, kNormalized>}, a, maps,
               started, z);
      });
}

template <class Shape>
void launch_walk(const Bf16Arguments& a, const LaunchPlan& plan, const Normalizer* normalizer) {
  normalizer ? launch_walk<Shape, true>(a, plan, *normalizer) : launch_walk<Shape, false>(a, plan, Normalizer{});
}

}  // namespace

void hopper_walk(const Bf16Arguments& a, const LaunchPlan& plan, const Normalizer* normalizer) {
  a.Dk <= 64 ? launch_walk<PanelShape<64, 64>>(a, plan, normalizer)
             : launch_walk<PanelShape<128, 64>>(a, plan, normalizer);
}

}  // namespace tutorial::linear_attention
