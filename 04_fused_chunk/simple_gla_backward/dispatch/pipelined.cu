/// @file
/// `pipelined`: the loads of the next chunk run under the products of this one.
///
/// Idea: as in `fused` of the operator, there are two sets of tiles, and cp.async fills one while the block computes on
/// the other. g arrives one chunk ahead of the tiles, and every warp sums it up for itself, between products. The
/// partner's rows are needed last. Their load starts with the chunk and has the time of the first two products, so that
/// one tile is enough for them.
/// Improves on: a block of `segments` loads, waits, and then computes.
/// Unchanged: segments, products, rounding: it gives the same bits.
/// Shapes: as `segments`. Shared memory holds two sets of Q, K and V, and one tile of the partner.
/// Thread mapping: as `segments`.
/// Synchronization: two barriers per chunk. The first comes when this chunk's tiles are there and all warps are done
/// with the last chunk, and the second when P and the partner are there. The row products of a chunk are added up
/// behind the first barrier of the next.
/// Resources: 100 KB of shared memory at Dk = Dv = 128, so that two blocks share a multiprocessor.
/// Work: as `segments`.
/// Bytes: as `segments`, and g of a block's first chunk four times, once for each warp.
/// Bound by: as `fused` of the operator, the walk over the chunks of a segment.
/// Requires: as `segments`, with Dk and Dv up to 128, and a GPU that gives a block 100 KB of shared memory.
/// Weakness: products of warps, each waiting for its operands. dk and dv compute dS twice.
/// Sources: as `segments`; 02_chunkwise/linear_attention/8_pipelined.cu.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/dispatch/pipelined_walk.cuh"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "04_fused_chunk/simple_gla_backward/requirements.hpp"
#include "04_fused_chunk/simple_gla_backward/segments.cuh"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

/// Computes one gradient. Grid (tiles of its columns of all segments, H, B).
/// @param plan its `starts` are the states that segment_states_kernel and the carry have left
/// @param products the gradient's RowProducts, or null
/// @param end_state the factor of S at the end of the walk in `end_products`; its data is null if it is 0
/// @param end_products a part of the product of both per warp: [B, H, tiles, kWarps]
template <class Shape>
__global__ void __launch_bounds__(kThreads, 2) gradient_walk_kernel(Gradient g, LaunchPlan plan, float* products,
                                                                    View<const float> end_state, float* end_products) {
  const Bf16Arguments& a = g.a;
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns;
  const int tile = first_column / Shape::kDv;
  const int order = g.is_reversed ? plan.segments - 1 - part.segment : part.segment;
  if (products) products += (tile * std::int64_t(a.B) * a.H + part.head) * a.L;
  typename Shape::State S;
  walk_pipelined<Shape>(S, g, part, products, [&](typename Shape::State& S) {
    const StateStrides strides = g.strides(a.initial_state.stride_l);
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column * strides.column : nullptr;
    load_state<Shape>(S, start, strides, a.Dk, columns);
    scale_state<Shape>(S, g.start_factor);
    if (order > 0) {
      const StateStrides carried = g.strides(g.is_transposed ? a.Dk : a.Dv);
      const std::int64_t place = std::int64_t(part.head) * (plan.segments - 1) + order - 1;
      load_state<Shape>(S, plan.starts + place * a.Dk * a.Dv + first_column * carried.column, carried, a.Dk, columns);
    }
  });
  if (order < plan.segments - 1) return;
  if (a.final_state.data) {
    scale_state<Shape>(S, a.scale);
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
  if (end_state.data) {
    const float sum =
        multiply_by<Shape>(S, end_state.row(b, h, 0), g.strides(end_state.stride_l), a.Dk, first_column, columns);
    const std::int64_t block = std::int64_t(part.head) * (gridDim.x / plan.segments) + tile;
    if (lane_index() == 0) store_global(end_products + block * kWarps + warp_index(), sum);
  }
}

}  // namespace

void pipelined_backward(const Bf16BackwardArguments& b) {
  const Segments segments(b, plan_of(b));
  segments.compute_states();
  for (int i = 0; i < 3; ++i) {
    const Gradient& gradient = segments.gradients[i];
    const auto start = [&]<class Shape>(Shape) {
      launch(gradient_walk_kernel<Shape>,
             {grid_of<Shape>(extents_of(gradient.a), segments.plan.segments), kThreads, kSharedBytes<Shape>}, gradient,
             segments.plan_for(i), segments.products.of(i), segments.end_state(i), segments.end_products);
    };
    gradient.a.Dk <= 64 ? start(ChunkShape<64, 64>()) : start(ChunkShape<128, 64>());
  }
  segments.compute_gate_gradient();
}

std::string pipelined_backward_unsupported(const Bf16BackwardArguments& b) {
  if (const std::string reason = walks_backward_unsupported(b); !reason.empty()) return reason;
  if (b.Dk > 128 || b.Dv > 128) return "Dk or Dv > 128: `segments` has one set of tiles, and more room";
  return shared_memory_missing(kSharedBytes<ChunkShape<128, 64>>);
}

}  // namespace tutorial::simple_gla
