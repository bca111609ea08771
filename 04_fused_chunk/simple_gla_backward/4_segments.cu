/// @file
/// Stage 4, `segments`: the walks on segments of the sequence at once, and dg anew at the end of each segment.
///
/// Idea: as in chapter 02's `segments`, a first kernel computes what each segment adds to S, and to dS in
/// the other direction, and a second kernel carries both from segment to segment. Both directions have the same
/// segments. So at each border S and dS are in memory, and <S, dS> is dg there: the sum for dg starts anew, and its
/// errors are those of one segment. A segment has at most 2048 positions, however many heads there are.
/// Grows out of: 3_walks.cu
/// Improves on: the errors of `walks` grow with L, and it has one block per head and 64 columns.
/// Unchanged: the walk of a segment. segments.cuh has the other kernels.
/// Equation: with segment m from position s to position e, and S' = dS / scale
///
///   H_m  = sum over t of 2^(g_(t+1) + ... + g_e) k_t^T v_t      S_e      = 2^(g_s + ... + g_e) S_{s-1} + H_m
///   H'_m = sum over t of 2^(g_s + ... + g_t) q_t^T do_t         S'_{s-1} = 2^(g_s + ... + g_e) S'_e + H'_m
///   dg_t = scale <S_e, S'_e> + sum_{i = t..e} (q_i . dq_i - k_i . dk_i)
///
/// (g here to base 2.) The states of the first equation are found chunk by chunk, as in the walks.
/// Shapes: as `walks`; carried states [B, H, segments - 1, Dk, Dv] and decays of whole segments [B, H, segments - 1]
/// for each direction, fp32, in device memory. Those of S' are in the order of its walk, from the last segment.
/// Thread mapping: block (x, h, b) takes 64 columns of one segment of one gradient. In the last kernel a block has a
/// segment: all its threads multiply the two states, and each warp sums up dg of a chunk.
/// Resources: as `walks`.
/// Work: as `walks`, and 4 Dk Dv operations per position of all segments but one for the states.
/// Bytes: as `walks`, and k, v, q, do and g once more for the states, each for every tile that needs it; the carried
/// states, 8 Dk Dv bytes per border and head, are written twice, S is read twice and S' three times.
/// Bound by: latency, as `walks`, with as many segments as fill the GPU.
/// Requires: as `walks`.
/// Weakness: a block loads, waits and computes; its products are those of warps.
/// Sources: arXiv 2312.06635, section 4.3 and "sequence-level parallelism" in section 3.3.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/gate_gradient.cuh"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "04_fused_chunk/simple_gla_backward/segments.cuh"
#include "common/device/launch.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

/// Computes one gradient. Grid (tiles of its columns of all segments, H, B).
/// @param plan its `starts` are the states that segment_states_kernel and the carry have left
/// @param products the gradient's RowProducts, or null
/// @param end_state the factor of S at the end of the walk in `end_products`; its data is null if it is 0
/// @param end_products a part of the product of both per warp: [B, H, tiles, kWarps]
template <class Shape>
__global__ void __launch_bounds__(kThreads) gradient_walk_kernel(Gradient g, LaunchPlan plan, float* products,
                                                                 View<const float> end_state, float* end_products) {
  const Bf16Arguments& a = g.a;
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, N = (part.end - part.begin - 1) / kChunk + 1;
  const int first_column = part.first_column, columns = part.columns, tile = first_column / Shape::kDv;
  const int order = g.is_reversed ? plan.segments - 1 - part.segment : part.segment;
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const ChunkTiles<Shape> tiles(memory);
  const typename Shape::ScoreTile P{memory + ChunkTiles<Shape>::kElements};
  const typename Shape::ValueTile partner{P.data + kChunk * kChunk};
  const SharedSums sums{reinterpret_cast<float*>(partner.data + kChunk * Shape::kDv)};
  const TileProducts row_products{sums.b + kChunk, sums.b + 2 * kChunk};

  typename Shape::State S;
  const StateStrides strides = g.strides(a.initial_state.stride_l);
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column * strides.column : nullptr;
  load_state<Shape>(S, start, strides, a.Dk, columns);
  scale_state<Shape>(S, g.start_factor);
  if (order > 0) {
    const StateStrides carried = g.strides(g.is_transposed ? a.Dk : a.Dv);
    const std::int64_t place = std::int64_t(part.head) * (plan.segments - 1) + order - 1;
    load_state<Shape>(S, plan.starts + place * a.Dk * a.Dv + first_column * carried.column, carried, a.Dk, columns);
  }

  for (int i = 0; i < N; ++i) {
    const int t = part.begin + (g.is_reversed ? N - 1 - i : i) * kChunk, rows = a.L - t;
    load_tile(tiles.Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_tile(tiles.K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_tile(tiles.V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
    if (products) load_tile(partner, g.partner.row(b, h, t) + first_column, g.partner.stride_l, rows, columns);
    if (threadIdx.x < 32) sums.store(ChunkSums(load_g(a, b, h, t, a.L)));
    __syncthreads();
    const DirectedDecays directed(sums, g.is_reversed, a.L - 1 - t);
    typename Shape::Output O = {};
    masked_scores<Shape>(P, g.is_reversed ? tiles.K : tiles.Q, g.is_reversed ? tiles.Q : tiles.K,
                         OffDiagonal<DecayedScores>{{sums, a.scale}, row_products.own});
    add_from_state<Shape>(O, tiles.Q, S);
    scale_rows<Shape>(O, [&](int row) { return a.scale * directed.from_state(row); });
    __syncthreads();
    g.is_reversed ? add_from_transposed_scores<Shape>(O, P, tiles.V) : add_from_scores<Shape>(O, P, tiles.V);
    if (products) row_products.multiply<Shape>(O, partner);
    add_rows<Shape>(O, tiles.V, [&](int t) { return row_products.own[t]; });
    update_state<Shape>(S, tiles.K, tiles.V, directed);
    store_output<Shape>(a.o.row(b, h, t) + first_column, a.o.stride_l, rows, columns, O, tiles.V, 1.0f);
    __syncthreads();
    const std::int64_t heads = std::int64_t(a.B) * a.H;
    if (products) row_products.store(products + (tile * heads + part.head) * a.L + t, rows);
  }
  if (order < plan.segments - 1) return;
  if (a.final_state.data) {
    scale_state<Shape>(S, a.scale);
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
  if (end_state.data) {
    const StateStrides end = g.strides(end_state.stride_l);
    float sum = 0;
    for_each_element<Shape>(S, end_state.row(b, h, 0) + first_column * end.column, end, a.Dk, columns,
                            [&](float element, const float* address) { sum += element * load_global(address); });
    sum = warp_sum(sum);
    const std::int64_t block = std::int64_t(part.head) * (gridDim.x / plan.segments) + tile;
    if (lane_index() == 0) store_global(end_products + block * kWarps + warp_index(), sum);
  }
}

template <class Shape>
constexpr std::size_t kSharedBytes = ChunkTiles<Shape>::kBytes + 2 * kChunk*(kChunk + Shape::kDv) + SharedSums::kBytes
                                     + TileProducts::kBytes;

}  // namespace

void segments_backward(const Bf16BackwardArguments& b) {
  const Segments segments(b, plan_of(b));
  segments.compute_states();
  for (int i = 0; i < 3; ++i) {
    const Gradient& gradient = segments.gradients[i];
    select_shape(gradient.a.Dk, [&]<class Shape>(Shape) {
      launch(gradient_walk_kernel<Shape>,
             {grid_of<Shape>(extents_of(gradient.a), segments.plan.segments), kThreads, kSharedBytes<Shape>}, gradient,
             segments.plan_for(i), segments.products.of(i), segments.end_state(i), segments.end_products);
    });
  }
  segments.compute_gate_gradient();
}

}  // namespace tutorial::simple_gla
