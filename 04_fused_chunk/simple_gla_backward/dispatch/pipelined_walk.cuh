#pragma once
/// @file
/// The walk of `pipelined`, for segments of one sequence and of packed sequences.

#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla/walked_sums.cuh"
#include "04_fused_chunk/simple_gla_backward/gate_gradient.cuh"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "common/device/cp_async.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;  // chunks in shared memory

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes +
                                     kChunk*(kChunk + Shape::kDv) * sizeof(__nv_bfloat16) + WalkedSums::kBytes
                                     + TileProducts::kBytes;

/// Walks a segment of one gradient.
/// @param part b, h, begin, end, first_column and columns of the block
/// @param products where the product of the first position of all goes; null if none is asked for
/// @param load_start (S): loads the state that the walk starts from
template <class Shape, class Part, class LoadStart>
__device__ __forceinline__ void walk_pipelined(typename Shape::State& S, const Gradient& g, const Part& part,
                                               float* products, LoadStart load_start) {
  const Bf16Arguments& a = g.a;
  const int b = part.b, h = part.h, N = (part.end - part.begin - 1) / kChunk + 1;
  const int first_column = part.first_column, columns = part.columns;
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const typename Shape::ScoreTile P{memory + kPipelineDepth * ChunkTiles<Shape>::kElements};
  const typename Shape::ValueTile partner{P.data + kChunk * kChunk};
  const WalkedSums walked{reinterpret_cast<float*>(partner.data + kChunk * Shape::kDv)};
  float* own = walked.memory + WalkedSums::kBytes / sizeof(float);
  const TileProducts row_products{own, own + kChunk};

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

  load_start(S);

  for (int i = 0; i < N; ++i) {
    const int t = position(i), rows = a.L - t;
    cp_async_wait<0>();
    __syncthreads();
    if (products && i > 0) row_products.store(products + position(i - 1), a.L - position(i - 1));
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
  if (products) row_products.store(products + position(N - 1), a.L - position(N - 1));
}

/// A warp's part of the product of S with another state, as its block's columns are.
/// @param state of the block's head @param strides of the state
template <class Shape>
__device__ __forceinline__ float multiply_by(typename Shape::State& S, const float* state, const StateStrides& strides,
                                             int Dk, int first_column, int columns) {
  float sum = 0;
  for_each_element<Shape>(S, state + first_column * strides.column, strides, Dk, columns,
                          [&](float element, const float* address) { sum += element * load_global(address); });
  return warp_sum(sum);
}

}  // namespace
}  // namespace tutorial::simple_gla
