/// @file
/// The three gradients by the kernels of linear_attention/dispatch/hopper_walk.cuh, in one launch.
///
/// A block walks one segment of one gradient with 64 of its columns. Its place in the grid says which gradient that is.
/// So blocks of the three gradients run at the same time, and the blocks of a head share their reads through the
/// second-level cache: dk and dv walk over the same chunks in the same order. If there are segments, kernel 1 computes
/// the segments' parts of S and dS, carry_states() adds up both, and the walk of dk reads dS transposed.
///
/// Each gradient counts its segments in the order of its walk. Positions are counted in whole chunks: a walk from the
/// end begins with the chunk that may be shorter, whose missing rows are zeros.

#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/linear_attention/dispatch/hopper_walk.cuh"
#include "02_chunkwise/linear_attention_backward/dispatch/segments.cuh"
#include "02_chunkwise/linear_attention_backward/dispatch/walks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

/// A gradient, with the tensor maps and the number of blocks of its walk.
struct MappedGradient {
  Gradient gradient;
  ChunkMaps maps;
  int blocks;  ///< tiles of 64 columns
};

/// The walks of kernel 1: the segments' parts of S and dS.
struct StateWalks {
  MappedGradient of[2];
  LaunchPlan plan;
  float* states[2];  ///< [B, H, segments - 1, Dk, Dv]
};

struct GradientWalks {
  MappedGradient of[3];
  LaunchPlan plan;
  const float* states[3];  ///< of the user's shape, [B, H, segments - 1, Dk, Dv]: where segments start from
};

/// Kernel 1. Grid (blocks for S and for dS, of all segments but the last; H; B).
template <class Shape>
__global__ void __launch_bounds__(kStatesBlock<false>, 2)
    hopper_gradient_states_kernel(const __grid_constant__ StateWalks walks) {
  const int each = walks.of[0].blocks * (walks.plan.segments - 1), kind = int(blockIdx.x) / each;
  const Gradient& g = walks.of[kind].gradient;
  const Extents extents = whole_chunks(g.a);
  const BlockPart<Shape> part(extents, walks.plan.length, int(blockIdx.x) % each);
  compute_segment_state<Shape, false>(g.a, walks.of[kind].maps, walks.plan, part,
                                      EitherWay{g.is_reversed, extents.L - kChunk}, walks.states[kind], nullptr);
}

/// Kernel 3. Grid (blocks of all gradients and segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlock<false>, 1)
    hopper_gradients_kernel(const __grid_constant__ GradientWalks walks) {
  int block = int(blockIdx.x), which = 0;
  while (block >= walks.of[which].blocks * walks.plan.segments) {
    block -= walks.of[which].blocks * walks.plan.segments;
    ++which;
  }
  const Gradient& g = walks.of[which].gradient;
  const Bf16Arguments& a = g.a;
  const Extents extents = whole_chunks(a);
  const BlockPart<Shape> part(extents, walks.plan.length, block);
  walk_segment<Shape, false>(
      a, walks.of[which].maps, walks.plan, Normalizer{}, part, extents.L, EitherWay{g.is_reversed, extents.L - kChunk},
      [&](WarpgroupState<Shape::kDk>& S) {
        const SegmentStart start = start_of(g, walks.plan, part, walks.states[which]);
        load_group_state<Shape::kDk>(S, start.state, start.strides, a.Dk, part.columns);
#pragma unroll
        for (float& element : S) element *= start.factor;
      },
      [&](WarpgroupState<Shape::kDk>& S) {
#pragma unroll
        for (float& element : S) element *= a.scale;
        store_group_state<Shape::kDk>(a.final_state.row(part.b, part.h, 0) + part.first_column, S,
                                      a.final_state.stride_l, a.Dk, part.columns);
      });
}

template <class Shape>
void launch_gradients(const Bf16BackwardArguments& b, const LaunchPlan& plan) {
  const std::array<Gradient, 3> gradients = gradients_of(b);
  const auto mapped = [](const Gradient& gradient) {
    return MappedGradient{gradient, chunk_maps(gradient.a), ceil_div(gradient.a.Dv, Shape::kDv)};
  };
  GradientWalks walks{{mapped(gradients[0]), mapped(gradients[1]), mapped(gradients[2])}, plan, {}};
  if (const int count = plan.segments - 1; count > 0) {
    const SegmentStates states(b, plan);
    const StateWalks sums{{mapped(states.sums[0]), mapped(states.sums[1])}, plan, {states.states[0], states.states[1]}};
    const dim3 grid(unsigned(2 * sums.of[0].blocks * count), unsigned(b.H), unsigned(b.B));
    launch(hopper_gradient_states_kernel<Shape>,
           {grid, kStatesBlock<false>, kPipelineDepth * StateTiles<Shape>::kBytes}, sums);
    states.carry();
    for (int i = 0; i < 3; ++i) walks.states[i] = states.starts(i);
  }
  const int blocks = walks.of[0].blocks + walks.of[1].blocks + walks.of[2].blocks;
  launch(
      hopper_gradients_kernel<Shape>,
      {dim3(unsigned(blocks * plan.segments), unsigned(b.H), unsigned(b.B)), kBlock<false>, kSharedBytes<Shape, false>},
      walks);
}

}  // namespace

void hopper_gradient_walks(const Bf16BackwardArguments& b, const LaunchPlan& plan) {
  b.Dk <= 64 && b.Dv <= 64 ? launch_gradients<PanelShape<64, 64>>(b, plan)
                           : launch_gradients<PanelShape<128, 64>>(b, plan);
}

}  // namespace tutorial::linear_attention
