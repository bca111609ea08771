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

#include "04_fused_chunk/simple_gla/walked_sums.cuh"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/gate_gradient.cuh"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "04_fused_chunk/simple_gla_backward/requirements.hpp"
#include "04_fused_chunk/simple_gla_backward/segments.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/device.hpp"
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

constexpr int kPipelineDepth = 2;  // chunks in shared memory

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
  const int b = part.b, h = part.h, N = (part.end - part.begin - 1) / kChunk + 1;
  const int first_column = part.first_column, columns = part.columns, tile = first_column / Shape::kDv;
  const int order = g.is_reversed ? plan.segments - 1 - part.segment : part.segment;
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const typename Shape::ScoreTile P{memory + kPipelineDepth * ChunkTiles<Shape>::kElements};
  const typename Shape::ValueTile partner{P.data + kChunk * kChunk};
  const WalkedSums walked{reinterpret_cast<float*>(partner.data + kChunk * Shape::kDv)};
  float* own = walked.memory + WalkedSums::kBytes / sizeof(float);
  const TileProducts row_products{own, own + kChunk};
  const std::int64_t heads = std::int64_t(a.B) * a.H, first_product = (tile * heads + part.head) * a.L;

  const auto position = [&](int i) { return part.begin + (g.is_reversed ? N - 1 - i : i) * kChunk; };
  const auto tiles_of = [&](int i) {
    return ChunkTiles<Shape>(memory + i % kPipelineDepth * ChunkTiles<Shape>::kElements);
  };
  const auto load = [&](int i) {  // with g of the chunk after it
    const ChunkTiles<Shape> tiles = tiles_of(i);
    const int t = position(i), next = position(i + 1), rows = a.L - t;
    load_tile_async(tiles.Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_tile_async(tiles.K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_tile_async(tiles.V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
    if (i + 1 < N) load_g_async(walked.g_of(next), a.g.row(b, h, next), a.g.stride_l, a.L - next);
  };
  load(0);
  cp_async_commit();
  walked.add_up(a, b, h, position(0), a.L);

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
    const int t = position(i), rows = a.L - t;
    cp_async_wait<0>();
    __syncthreads();
    if (products && i > 0) row_products.store(products + first_product + position(i - 1), a.L - position(i - 1));
    if (products) load_tile_async(partner, g.partner.row(b, h, t) + first_column, g.partner.stride_l, rows, columns);
    cp_async_commit();
    if (i + 1 < N) load(i + 1);
    cp_async_commit();
    const ChunkTiles<Shape> tiles = tiles_of(i);
    const SharedSums sums = walked.sums_of(t);
    const DirectedDecays directed(sums, g.is_reversed, a.L - 1 - t);
    typename Shape::Output O = {};
    masked_scores<Shape>(P, g.is_reversed ? tiles.K : tiles.Q, g.is_reversed ? tiles.Q : tiles.K,
                         OffDiagonal<DecayedScores>{{sums, a.scale}, row_products.own});
    add_from_state<Shape>(O, tiles.Q, S);
    scale_rows<Shape>(O, [&](int row) { return a.scale * directed.from_state(row); });
    if (i + 1 < N) walked.add_up(position(i + 1));
    cp_async_wait<1>();  // the partner
    __syncthreads();
    g.is_reversed ? add_from_transposed_scores<Shape>(O, P, tiles.V) : add_from_scores<Shape>(O, P, tiles.V);
    if (products) row_products.multiply<Shape>(O, partner);
    add_rows<Shape>(O, tiles.V, [&](int t) { return row_products.own[t]; });
    update_state<Shape>(S, tiles.K, tiles.V, directed);
    store_output<Shape>(a.o.row(b, h, t) + first_column, a.o.stride_l, rows, columns, O, tiles.V, 1.0f);
  }
  __syncthreads();
  if (products) row_products.store(products + first_product + position(N - 1), a.L - position(N - 1));
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
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes +
                                     kChunk*(kChunk + Shape::kDv) * sizeof(__nv_bfloat16) + WalkedSums::kBytes
                                     + TileProducts::kBytes;

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
