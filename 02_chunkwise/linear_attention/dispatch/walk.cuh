#pragma once
/// @file
/// The walk that dispatch starts: `pipelined` and `segments` for every launch plan, with the normaliser if
/// there is one, and in either direction (direction.cuh), for the gradients.
///
/// Kernel 1 (compute_segment_state()) and carry_states() run only if there are segments. The stage file
/// ../9_segments.cu explains them. normalizer.cuh says how z is computed among the products of the walk.
/// Shared memory at Dk = Dv = 128: 104 KB, with the normaliser 108 KB, so that two blocks fit on a multiprocessor.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention/dispatch/direction.cuh"
#include "02_chunkwise/linear_attention/dispatch/in_segments.cuh"
#include "02_chunkwise/linear_attention/dispatch/normalizer.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;           // chunks in shared memory
constexpr int kPipelineDepthForStates = 3;  // the same, in kernel 1

template <class Shape, bool kNormalized>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes +
                                     kChunk* kChunk * sizeof(__nv_bfloat16) +
                                     (kNormalized ? SharedNormalizer<Shape>::kBytes : 0);

/// Kernel 1: computes the sum of k_t^T v_t of a segment that is not the last.
/// @param part a BlockPart, or a part of packed sequences with the same members
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param normalizers [B, H, segments - 1, Dk]: the segments' sums of k_t; unused unless kNormalized
template <class Shape, bool kNormalized, class Part, class Direction>
__device__ __forceinline__ void compute_segment_state(const Bf16Arguments& a, const LaunchPlan& plan, const Part& part,
                                                      const Direction& direction, float* states, float* normalizers) {
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int n) {
    return StateTiles<Shape>(memory + n % kPipelineDepthForStates * StateTiles<Shape>::kBytes);
  };
  const int chunks = plan.length / kChunk;
  const auto load = [&](int n) {
    if (n < chunks) {
      const StateTiles<Shape> tiles = tiles_of(n);
      const int t = direction.position(part.begin + (chunks - 1 - n) * kChunk);  // from the segment's end
      const int rows = direction.is_reversed() ? a.L - t : kChunk;
      load_tile_async(tiles.K, a.k.row(part.b, part.h, t), a.k.stride_l, rows, a.Dk);
      load_tile_async(tiles.V, a.v.row(part.b, part.h, t) + part.first_column, a.v.stride_l, rows, part.columns);
    }
    cp_async_commit();  // an empty group near the end keeps the count right
  };
  load(0);
  load(1);
  typename Shape::State S = {};
  typename SharedNormalizer<Shape>::KeySums keys = {};
  for (int n = 0; n < chunks; ++n) {
    cp_async_wait<1>();
    __syncthreads();
    load(n + 2);
    update_state<Shape>(S, tiles_of(n).K, tiles_of(n).V);
    if constexpr (kNormalized) SharedNormalizer<Shape>::add_keys(keys, tiles_of(n).K);
  }
  const std::int64_t at = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  store_state<Shape>(states + at * a.Dk * a.Dv + part.first_column, S, a.Dv, a.Dk, part.columns);
  if constexpr (kNormalized) {
    if (part.first_column == 0) SharedNormalizer<Shape>::store_keys(normalizers + at * a.Dk, keys, a.Dk);
  }
}

/// Kernel 3: walks a segment.
/// @param load_start (S): loads the state that the segment starts from
/// @param store_final (S): called after the last segment, stores the final state
template <class Shape, bool kNormalized, class Part, class Direction, class LoadStart, class StoreFinal>
__device__ __forceinline__ void walk_segment(const Bf16Arguments& a, const LaunchPlan& plan,
                                             const Normalizer& normalizer, const Part& part, int L,
                                             const Direction& direction, LoadStart load_start, StoreFinal store_final) {
  const int b = part.b, h = part.h, begin = part.begin, end = part.end;
  const int first_column = part.first_column, columns = part.columns;
  auto* memory = dynamic_shared<unsigned char>();
  auto* elements = dynamic_shared<__nv_bfloat16>();
  const auto tiles_of = [&](int t) {
    // Counting in bytes takes fewer instructions. Counting in elements takes fewer registers, which the normaliser
    // needs.
    const int set = t / kChunk % kPipelineDepth;
    return kNormalized ? ChunkTiles<Shape>(elements + set * ChunkTiles<Shape>::kElements)
                       : ChunkTiles<Shape>(memory + set * ChunkTiles<Shape>::kBytes);
  };
  const typename Shape::ScoreTile P{elements + kPipelineDepth * ChunkTiles<Shape>::kElements};
  const SharedNormalizer<Shape> z(P.data + kChunk * kChunk);

  const auto load = [&](int t) {
    const ChunkTiles<Shape> tiles = tiles_of(t);
    const int position = direction.position(t), rows = direction.rows(t, end, a.L), batch = hide_from_compiler(b);
    load_tile_async(tiles.Q, a.q.row(batch, h, position), a.q.stride_l, rows, a.Dk);
    load_tile_async(tiles.K, a.k.row(batch, h, position), a.k.stride_l, rows, a.Dk);
    load_tile_async(tiles.V, a.v.row(batch, h, position) + first_column, a.v.stride_l, rows, columns);
    cp_async_commit();
  };
  load(begin);

  typename Shape::State S;
  load_start(S);
  if constexpr (kNormalized) {
    z.load(start_of_z(normalizer, part, plan, a.Dk), a.Dk, begin / kChunk);
  }

  for (int t = begin; t < end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < end) load(t + kChunk);
    const ChunkTiles<Shape> tiles = tiles_of(t);
    typename Shape::Output O = {};
    if constexpr (kNormalized) {
      typename SharedNormalizer<Shape>::Epilogue epilogue(z, t / kChunk, tiles.Q, tiles.K);
      masked_scores<Shape>(P, tiles.Q, tiles.K, epilogue);
      epilogue.finish();
    } else {
      masked_scores<Shape>(P, direction.is_reversed() ? tiles.K : tiles.Q, direction.is_reversed() ? tiles.Q : tiles.K);
    }
    add_from_state<Shape>(O, tiles.Q, S);
    __syncthreads();
    if (direction.is_reversed()) {
      add_from_transposed_scores<Shape>(O, P, tiles.V);
    } else {
      add_from_scores<Shape>(O, P, tiles.V);
    }
    update_state<Shape>(S, tiles.K, tiles.V);
    const int position = direction.position(t), rows = direction.rows(t, end, a.L);
    __nv_bfloat16* o = a.o.row(hide_from_compiler(b), h, position) + first_column;
    if constexpr (kNormalized) {
      store_output<Shape>(o, a.o.stride_l, rows, columns, O, tiles.V, z.factors(a.scale, normalizer.eps));
    } else {
      store_output<Shape>(o, a.o.stride_l, rows, columns, O, tiles.V, a.scale);
    }
  }
  if (end < L) return;
  if (a.final_state.data) store_final(S);
  if constexpr (kNormalized) {
    if (normalizer.final_z && first_column == 0) {
      z.store(normalizer.final_z + std::int64_t(part.head) * a.Dk, a.Dk, (end - 1) / kChunk + 1);
    }
  }
}

}  // namespace
}  // namespace tutorial::linear_attention
