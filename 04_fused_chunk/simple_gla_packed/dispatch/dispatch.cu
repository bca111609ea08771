/// @file
/// `dispatch` of simple_gla on packed sequences: what a user calls.
///
/// Idea: chapter 02's list of segments, which begin where the sequences do, longest first
/// (common/tile/packed_segments.cuh), and the walks of `segments` over them. A segment that another one follows also
/// has a decay, and the carry from segment to segment multiplies by it. The rows and gates of a chunk that belong to the
/// next sequence are loaded as zeros: a gate of 1, and nothing that is added.
/// Improves on: `segments` needs sequences of one length.
/// Unchanged: the walks, and what they require.
/// On Hopper the walk is that of `register_scores`, on warpgroups (hopper_walk.cu), elsewhere that of `segments`.
/// Fallback: what they do not support goes to gla's dispatch (../../simple_gla/dispatch/as_gla.hpp), one sequence after
/// the other. Then the host reads cu_seqlens and waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: unlike `dispatch` of sequences of one length, it does not ask how far back gates let a segment see.

#include <cuda_runtime.h>

#include "04_fused_chunk/packed_simple_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/as_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/segment_walk.cuh"
#include "04_fused_chunk/simple_gla_packed/dispatch/hopper_walk.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_columns.hpp"
#include "common/tile/carry.cuh"
#include "common/tile/carry_sequences.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/sequences_alone.cuh"

namespace tutorial::simple_gla {
namespace {

constexpr int kHopperColumns = 64;
constexpr int kShortest = 16 * kChunk;  // positions of a segment: a shorter walk ends before states were carried

/// Kernel 1: for every segment that another one follows, what it makes of a state of zeros, and its decay. Grid
/// packed_grid() of them.
/// @param states [plan.states, H, Dk, Dv] @param decays [plan.states, H]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    packed_states_kernel(Bf16Arguments a, PackedPlan plan, float* states, float* decays) {
  const PackedPart<Shape> part(extents_of(a), plan);
  if (part.sequence < 0) return;
  compute_segment_state<Shape>(a, part, std::int64_t(part.entry) * a.H + part.h, states, decays);
}

/// Kernel 3. Grid packed_grid() of all segments.
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    packed_walk_kernel(Bf16Arguments a, PackedPlan plan) {
  const PackedPart<Shape> part(extents_of(a), plan);
  if (part.sequence < 0) return;
  walk_segment<Shape>(
      a, part,
      [&](typename Shape::State& S) {
        const float* start =
            a.initial_state.data ? a.initial_state.row(part.sequence, part.h, 0) + part.first_column : nullptr;
        if (part.start >= 0) start = plan.starts + part.state(extents_of(a), part.start);
        load_state<Shape>(S, start, part.start >= 0 ? a.Dv : a.initial_state.stride_l, a.Dk, part.columns);
      },
      [&](typename Shape::State& S) {
        if (part.entry < plan.states || !a.final_state.data) return;
        store_state<Shape>(a.final_state.row(part.sequence, part.h, 0) + part.first_column, S, a.final_state.stride_l,
                           a.Dk, part.columns);
      });
}

bool is_by_warpgroups(const PackedBf16Arguments& p) {
  return specialized_unsupported(p.all).empty();
}

PackedPlan plan_of(const PackedBf16Arguments& p) {
  const Extents extents = extents_of(p.all);
  return packed_plan(extents, p.N, is_by_warpgroups(p) ? kHopperColumns : widest_tile(extents), kShortest);
}

std::int64_t decays_of(const PackedBf16Arguments& p, const PackedPlan& plan) {
  return std::int64_t(plan.states) * p.all.H;
}

void packed_walk(const PackedBf16Arguments& p, PackedPlan plan) {
  const Bf16Arguments& a = p.all;
  const Extents extents = extents_of(a);
  plan.segments = list_segments(p.cu_seqlens, plan);
  select_shape(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    if (plan.states > 0) {
      const auto count = std::size_t(decays_of(p, plan));
      float* states = workspace<float>("simple_gla: states", count * std::size_t(a.Dk) * std::size_t(a.Dv));
      float* decays = workspace<float>("simple_gla: decays", count);
      launch(packed_states_kernel<Shape>,
             {packed_grid<Shape>(extents, plan.states), kThreads, kPipelineDepthForStates * kBytesForStates<Shape>}, a,
             plan, states, decays);
      carry_sequences(a.initial_state, plan, extents, SegmentDecay{decays}, states);
      plan.starts = states;
    }
    launch(packed_walk_kernel<Shape>, {packed_grid<Shape>(extents, plan.entries()), kThreads, kSharedBytes<Shape>}, a,
           plan);
  });
}

}  // namespace

void dispatch_packed(const PackedBf16Arguments& p) {
  if (!fused_unsupported(p.all).empty()) return for_each_sequence(p, dispatch_as_gla);
  is_by_warpgroups(p) ? hopper_packed(p, plan_of(p)) : packed_walk(p, plan_of(p));
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  if (!fused_unsupported(p.all).empty()) return as_gla_unsupported(p.all);
  return packed_plan_unsupported(extents_of(p.all), plan_of(p));
}

std::string dispatch_packed_note(const PackedBf16Arguments& p) {
  if (!fused_unsupported(p.all).empty()) return "gla's dispatch, one sequence after the other";
  const PackedPlan plan = plan_of(p);
  const std::string segments =
      plan.states > 0 ? "segments of " + std::to_string(plan.length) + " positions at most, " : "";
  return (is_by_warpgroups(p) ? "warpgroups, " : "packed, ") + segments + std::to_string(plan.columns) +
         " columns per block";
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  if (!fused_unsupported(p.all).empty()) return as_gla_memory(p.all);
  const PackedPlan plan = plan_of(p);
  return packed_plan_memory(extents_of(p.all), plan) + std::int64_t(sizeof(float)) * decays_of(p, plan);
}

}  // namespace tutorial::simple_gla
