/// @file
/// Stage 3, `walks`: S and dS stay on the chip, and dg takes one number per position from each of two walks.
///
/// Idea: dq, dk and dv are the operator on other inputs, walked from the first chunk to the last or back
/// (gradients.hpp), so the kernel is `fused` of the operator with the walk's direction as an argument. The walks for dq
/// and dk have their gradient's rows in fp32 registers before they round them. There they multiply them with the rows
/// of q and of k, and leave one number per position. The walk for dq ends with S_L in its registers, and leaves <S_L,
/// dfinal_state>. From these numbers a last kernel computes dg, one warp per head. What passes no gate is in none of
/// them (gate_gradient.cuh).
/// Grows out of: 2_chunkwise.cpp; port to the GPU: each of the two passes over the chunks is a walk of blocks, that for
/// dk and dv two
/// Improves on: `chunkwise` has one thread per head.
/// Unchanged: the products of a chunk, and dg from the end. C is 64.
/// Equation: with b_t, the sum of g / ln 2 from the first position of chunk n to t, and b_end at its last; P and R as
/// in `chunkwise`; S' = dS / scale, so that the factor scale stays outside of the sums
///
///   dQ_n = scale (diag(2^b) dO_n S^T + R_n K_n)               S^T  = 2^b_end S^T + V_n^T (diag(2^(b_end - b)) K_n)
///   dK_n = scale (diag(2^(b_end - b)) V_n S'^T + R_n^T Q_n)   S'^T = 2^b_end S'^T + dO_n^T (diag(2^b) Q_n)
///   dV_n = scale (diag(2^(b_end - b)) K_n S' + P_n^T dO_n)    S'   = 2^b_end S' + Q_n^T (diag(2^b) dO_n)
///   dg_t = <S_L, dfinal_state> + sum_{i = t..L} (q_i . dq'_i - k_i . dk'_i),  ' without the pairs (i, i)
///
/// n goes up in the first line, and down in the second and third.
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16; g, dg [B, H, L], states [B, H, Dk, Dv] and row
/// products fp32; in device memory. Shared memory holds four tiles of a chunk and P, registers hold S and O.
/// Thread mapping: block (x, h, b) takes 64 columns of one gradient of head h of batch entry b; its four warps divide
/// them among them. The last kernel has one warp per head.
/// Precision: P, R, decayed rows and a copy of the state are rounded to bf16; sums are fp32, and so are the row
/// products.
/// Resources: 57 KB of shared memory at Dk = Dv = 128, 96 of a thread's registers for S and O.
/// Work: as three calls of `fused`: per position 12 Dk Dv operations, of which dk and dv do 2 Dk Dv twice.
/// Bytes: q and k three times, v twice, do three times, g once for each tile, each gradient once. The tensors that are
/// Q or K of a walk are read once more for each further tile of columns, mostly from the second-level cache. The row
/// products are 16 bytes per position and 64 columns of Dk.
/// Bound by: latency, as `fused`. There are three times as many blocks.
/// Requires: Dk and Dv multiples of 16, up to 256; rows aligned to 16 bytes. Gates and states as `fused` of the
/// operator.
/// Weakness: the sum for dg runs over the whole sequence, and so do the errors in it: S and dS, rounded to bf16 for the
/// products of dq and dk, do not cancel. Relative to dg the error grows with the square root of L. There is only one
/// block per head and 64 columns, and it loads, waits and computes.
/// Sources: arXiv 2312.06635, algorithm 1 without materialization, and section 4.3.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/gate_gradient.cuh"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
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

/// Computes one gradient. Grid (tiles of its columns, H, B).
/// @param products the gradient's RowProducts, or null
/// @param end_state the factor of S at the end of the walk in `end_products`; its data is null if it is 0
/// @param end_products a part of the product of both per warp: [B, H, tiles, kWarps]
template <class Shape>
__global__ void __launch_bounds__(kThreads)
    gradient_walk_kernel(Gradient g, float* products, View<const float> end_state, float* end_products) {
  const Bf16Arguments& a = g.a;
  const BlockPart<Shape> part(extents_of(a), a.L);
  const int b = part.b, h = part.h, N = (part.end - part.begin - 1) / kChunk + 1;
  const int first_column = part.first_column, columns = part.columns, tile = first_column / Shape::kDv;
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

  for (int i = 0; i < N; ++i) {
    const int t = (g.is_reversed ? N - 1 - i : i) * kChunk, rows = a.L - t;
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
    if (products) row_products.store(products + (std::int64_t(tile) * a.B * a.H + part.head) * a.L + t, rows);
  }
  if (a.final_state.data) {
    scale_state<Shape>(S, a.scale);
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
  if (end_state.data) {
    const StateStrides end = g.strides(end_state.stride_l);
    float sum = 0;
    for_each_element<Shape>(S, end_state.row(b, h, 0) + first_column * end.column, end, a.Dk, columns,
                            [&](float element, const float* address) { sum += element * load_global(address); });
    const std::int64_t block = std::int64_t(part.head) * gridDim.x + tile;
    if (sum = warp_sum(sum); lane_index() == 0) store_global(end_products + block * kWarps + warp_index(), sum);
  }
}

template <class Shape>
constexpr std::size_t kSharedBytes = ChunkTiles<Shape>::kBytes + 2 * kChunk*(kChunk + Shape::kDv) + SharedSums::kBytes
                                     + TileProducts::kBytes;

/// dg of a head, from the last chunk to the first. Grid (H, B), one warp per block.
/// @param end_products as above
__global__ void __launch_bounds__(32)
    gate_gradient_kernel(Bf16BackwardArguments a, RowProducts products, const float* end_products) {
  const int b = int(blockIdx.y), h = int(blockIdx.x), parts = products.tiles * kWarps, first = (b * a.H + h) * parts;
  float dg = 0;
  for (int i = 0; i < parts && a.dfinal_state.data; ++i) dg += load_global(end_products + first + i);
  for (int t = (a.L - 1) / kChunk * kChunk; t >= 0; t -= kChunk) {
    const SumsFromEnd sums(a, products, b, h, t);
    sums.store(a, b, h, dg);
    dg += sums.whole();
  }
}

}  // namespace

void walks_backward(const Bf16BackwardArguments& b) {
  float* memory = workspace<float>("simple_gla --backward: products", std::size_t(walks_backward_memory(b)) / 4);
  const RowProducts products(b, memory);
  float* end_products = memory + RowProducts::elements(b);
  int i = 0;
  for (const Gradient& gradient : gradients_of(b)) {
    select_shape(gradient.a.Dk, [&]<class Shape>(Shape) {
      launch(gradient_walk_kernel<Shape>, {grid_of<Shape>(extents_of(gradient.a), 1), kThreads, kSharedBytes<Shape>},
             gradient, products.of(i), i == 0 ? b.dfinal_state : View<const float>{}, end_products);
    });
    ++i;
  }
  launch(gate_gradient_kernel, {dim3(unsigned(b.H), unsigned(b.B)), 32}, b, products, end_products);
}

}  // namespace tutorial::simple_gla
