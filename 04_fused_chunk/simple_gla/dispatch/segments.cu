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
#include "04_fused_chunk/simple_gla/dispatch/decay_to_end.cuh"
#include "04_fused_chunk/simple_gla/dispatch/walks.hpp"
#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "04_fused_chunk/simple_gla/walked_sums.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/carry.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
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

/// Kernel 1: for every segment but the last, what it makes of a state of zeros, and its decay. All chunks of these
/// segments are whole. Grid (tiles of Dv of these segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv] @param decays [B, H, segments - 1]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_states_kernel(Bf16Arguments a, LaunchPlan plan, float* states, float* decays) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const auto memory_of = [](int n) {
    return dynamic_shared<unsigned char>() + n % kPipelineDepthForStates * kBytesForStates<Shape>;
  };
  const auto tiles_of = [&](int n) { return StateTiles<Shape>(memory_of(n)); };
  const auto g_after = [&](int n) { return reinterpret_cast<float*>(memory_of(n) + StateTiles<Shape>::kBytes); };
  const int chunks = plan.length / kChunk;
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
  const std::int64_t at = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  store_state<Shape>(states + at * a.Dk * a.Dv + part.first_column, S, a.Dv, a.Dk, part.columns);
  if (part.first_column == 0 && threadIdx.x == 0) store_global(decays + at, exp2f(float(b_segment)));
}

/// Kernel 3. Grid (tiles of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) walk_kernel(Bf16Arguments a, LaunchPlan plan) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
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
  load(begin);
  walked.add_up(a, b, h, begin, end);

  typename Shape::State S;
  part.load_start(S, a.initial_state, plan, extents_of(a));

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
  if (end == a.L && a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
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
