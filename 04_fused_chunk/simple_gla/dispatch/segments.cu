/// @file
/// `segments`: the segments of the sequence are walked at once.
///
/// Idea: chapter 02's `segments` with one decay per segment, which is one number. Kernel 1 reads only k, v and
/// g. It writes the state that each segment makes of a state of zeros, and the decay of the segment. Kernel 2
/// (common/tile/carry.cuh) goes from segment to segment. Then kernel 3, that of `fused`, walks all segments at once.
///
///     segment       0               1               2               3
///     kernel 1   X_0, decay_0    X_1, decay_1    X_2, decay_2                      at once: reads k, v, g
///     kernel 2      S_0 -> decay_0 S_0 + X_0 -> decay_1 (that) + X_1 -> ...        one thread per element
///     kernel 3     walk            walk            walk            walk -> S_L     at once: reads q, k, v, g, writes o
///
/// Improves on: `fused` has only one block per head and tile of Dv; `two_kernels` moves one state per chunk.
/// Unchanged: the kernel of `fused`.
/// Equation: in kernel 1, for each chunk n from position s to position e with b_t = g_s / ln 2 + ... + g_t / ln 2,
///
///   X = 2^b_end X + K_n^T (diag(2^(b_end - b)) V_n)
///
/// Shapes: as `fused`; X and the states that segments start from [B, H, segments - 1, Dk, Dv], in the same place, and
/// decays [B, H, segments - 1], fp32 in device memory.
/// Thread mapping: kernel 1 as `fused`, without q; each warp computes b for itself, one chunk ahead, and keeps it in
/// registers. A segment's decay is 2 to the sum of its chunks' b_end, added up in double.
/// Resources: kernel 1 at Dk = Dv = 128: 215 registers per thread; three sets of K, V and g, 97 KB of shared memory:
/// two blocks per multiprocessor.
/// Work: that of `fused`, and 2 Dk Dv per position for kernel 1.
/// Bytes: k, v and g a second time, except those of the last segment; one state per segment is written, read, written
/// and read.
/// Bound by: the memory's bandwidth; for short sequences the starts and ends of three kernels.
/// Requires: as `fused`.
/// Weakness: the second read, and the launches. It always takes as many segments as fill the GPU once, even if fewer
/// would be faster; `dispatch` chooses the number.
/// Sources: chapter 02's `segments`.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/segment_walk.cuh"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/select_shape.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

/// Kernel 1: for every segment but the last, what it makes of a state of zeros, and its decay. All chunks of these
/// segments are whole. Grid (tiles of Dv of these segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv] @param decays [B, H, segments - 1]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_states_kernel(Bf16Arguments a, LaunchPlan plan, float* states, float* decays) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const std::int64_t at = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  compute_segment_state<Shape>(a, part, at, states, decays);
}

/// Kernel 3. Grid (tiles of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) walk_kernel(Bf16Arguments a, LaunchPlan plan) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  walk_segment<Shape>(
      a, part, [&](typename Shape::State& S) { part.load_start(S, a.initial_state, plan, extents_of(a)); },
      [&](typename Shape::State& S) {
        if (part.end < a.L || !a.final_state.data) return;
        store_state<Shape>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                           part.columns);
      });
}

}  // namespace

const float* segment_starts(const Bf16Arguments& a, const LaunchPlan& plan) {
  const int count = plan.segments - 1;
  const std::int64_t segments = std::int64_t(a.B) * a.H * count;
  float* states = workspace<float>("simple_gla: states", std::size_t(segments * a.Dk * a.Dv));
  float* decays = workspace<float>("simple_gla: decays", std::size_t(segments));
  select_shape(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    launch(segment_states_kernel<Shape>,
           {grid_of<Shape>(extents_of(a), count), kThreads, kPipelineDepthForStates * kBytesForStates<Shape>}, a, plan,
           states, decays);
  });
  carry_states(a.B, a.H, a.Dk, count, CarriedStates<SegmentDecay>{a.initial_state, a.Dv, states, {decays}});
  return states;
}

void walk(const Bf16Arguments& a, LaunchPlan plan) {
  if (plan.segments > 1) plan.starts = segment_starts(a, plan);
  select_shape(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    launch(walk_kernel<Shape>, {grid_of<Shape>(extents_of(a), plan.segments), kThreads, kSharedBytes<Shape>}, a, plan);
  });
}

void segments(const Bf16Arguments& a) {
  walk(a, one_wave(extents_of(a)));
}

}  // namespace tutorial::simple_gla
