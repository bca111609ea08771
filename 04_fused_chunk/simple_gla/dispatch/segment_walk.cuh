#pragma once
/// @file
/// The two walks of segments.cu: over a segment for its state, and over a segment from a state. Also those of the segments
/// of packed sequences.

#include <cuda_runtime.h>

#include <cstdint>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/decay_to_end.cuh"
#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "04_fused_chunk/simple_gla/walked_sums.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;           // chunks in shared memory
constexpr int kPipelineDepthForStates = 3;  // the same, in kernel 1

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes +
                                     kChunk* kChunk * sizeof(__nv_bfloat16) + WalkedSums::kBytes;

template <class Shape>
constexpr int kBytesForStates = StateTiles<Shape>::kBytes + kChunk* int(sizeof(float));  // of a chunk, in kernel 1

/// What a segment makes of a state of zeros, and its decay. All of its chunks are whole.
/// @param at the place of both in `states` [.., Dk, Dv] and `decays`
template <class Shape, class Part>
__device__ __forceinline__ void compute_segment_state(const Bf16Arguments& a, const Part& part, std::int64_t at,
                                                      float* states, float* decays) {
  const auto memory_of = [](int n) {
    return dynamic_shared<unsigned char>() + n % kPipelineDepthForStates * kBytesForStates<Shape>;
  };
  const auto tiles_of = [&](int n) { return StateTiles<Shape>(memory_of(n)); };
  const auto g_after = [&](int n) { return reinterpret_cast<float*>(memory_of(n) + StateTiles<Shape>::kBytes); };
  const int chunks = (part.end - part.begin) / kChunk;
  const auto load = [&](int n) {
    if (n < chunks) {
      const StateTiles<Shape> tiles = tiles_of(n);
      const int t = part.begin + n * kChunk, next = t + kChunk, batch = hide_from_compiler(part.b);
      load_tile_async(tiles.K, a.k.row(batch, part.h, t), a.k.stride_l, kChunk, a.Dk);
      load_tile_async(tiles.V, a.v.row(batch, part.h, t) + part.first_column, a.v.stride_l, kChunk, part.columns);
      load_g_async(g_after(n), a.g.row(batch, part.h, next), a.g.stride_l, part.end - next);
    }
    cp_async_commit();  // near the end an empty group keeps the count right
  };
  load(0);
  load(1);
  typename Shape::State S = {};
  double b_segment = 0;
  ChunkSums sums(load_g(a, part.b, part.h, part.begin, part.end));
  for (int n = 0; n < chunks; ++n) {
    cp_async_wait<1>();
    __syncthreads();
    load(n + 2);
    const DecayToEnd to_end(sums);
    b_segment += sums.end;
    sums = ChunkSums(g_of_lane(g_after(n)));
    update_state<Shape>(S, tiles_of(n).K, tiles_of(n).V, to_end);
  }
  store_state<Shape>(states + at * a.Dk * a.Dv + part.first_column, S, a.Dv, a.Dk, part.columns);
  if (part.first_column == 0 && threadIdx.x == 0) store_global(decays + at, exp2f(float(b_segment)));
}

/// Walks a segment. @param load_start (S): the state that it starts from @param store_final (S): called at its end
template <class Shape, class Part, class LoadStart, class StoreFinal>
__device__ __forceinline__ void walk_segment(const Bf16Arguments& a, const Part& part, LoadStart load_start,
                                             StoreFinal store_final) {
  const int b = part.b, h = part.h, begin = part.begin, end = part.end;
  const int first_column = part.first_column, columns = part.columns;
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) {
    return ChunkTiles<Shape>(memory + t / kChunk % kPipelineDepth * ChunkTiles<Shape>::kBytes);
  };
  const typename Shape::ScoreTile P{
      reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes)};
  const WalkedSums walked{reinterpret_cast<float*>(P.data + kChunk * kChunk)};

  const auto load = [&](int t) {
    const ChunkTiles<Shape> tiles = tiles_of(t);
    const int rows = end - t, batch = hide_from_compiler(b);
    load_tile_async(tiles.Q, a.q.row(batch, h, t), a.q.stride_l, rows, a.Dk);
    load_tile_async(tiles.K, a.k.row(batch, h, t), a.k.stride_l, rows, a.Dk);
    load_tile_async(tiles.V, a.v.row(batch, h, t) + first_column, a.v.stride_l, rows, columns);
    load_g_async(walked.g_of(t + kChunk), a.g.row(batch, h, t + kChunk), a.g.stride_l, rows - kChunk);
    cp_async_commit();
  };
  if (begin < end) load(begin);  // of packed sequences, some are empty
  walked.add_up(a, b, h, begin, end);

  typename Shape::State S;
  load_start(S);

  for (int t = begin; t < end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < end) load(t + kChunk);
    const ChunkTiles<Shape> tiles = tiles_of(t);
    const SharedSums sums = walked.sums_of(t);
    typename Shape::Output O = {};
    masked_scores<Shape>(P, tiles.Q, tiles.K, DecayedScores{sums, a.scale});
    add_from_state<Shape>(O, tiles.Q, S);
    decay_rows<Shape>(O, sums, a.scale);
    walked.add_up(t + kChunk);
    __syncthreads();
    add_from_scores<Shape>(O, P, tiles.V);
    update_state<Shape>(S, tiles.K, tiles.V, DecaysToEnd(sums));
    store_output<Shape>(a.o.row(hide_from_compiler(b), h, t) + first_column, a.o.stride_l, end - t, columns, O, tiles.V,
                        1.0f);
  }
  store_final(S);
}

}  // namespace
}  // namespace tutorial::simple_gla
