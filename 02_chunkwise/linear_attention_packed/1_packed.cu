/// @file
/// Stage 1 of packed sequences, `packed`: the segments begin where the sequences do.
///
/// Idea: a server has prompts of unequal lengths. They are not padded to the longest one, but lie one behind the other.
/// A chunk that crossed a border would mix two of them, so chunks are counted from the first position of each sequence,
/// and the rows of its last chunk that belong to the next sequence are loaded as zeros and not stored. To `segments`
/// such a batch is a sequence that has been cut already, only not into equal parts: no state is carried across these
/// cuts. What is longer than a block's share of all positions is cut further, as there, so that one long prompt among
/// short ones does not keep one block busy while all others wait.
///
///     cu_seqlens   0          37 37                 129 133                                   (37, 0, 92 and 4 positions)
///     segments     |last of 0 ||  of 2  | last of 2  |3|                                       each starts a walk of chunks
///                              last of 1: nothing to walk, it hands its state on
///
/// The lengths stand in device memory. The host does not ask for them: it chooses how long a segment is from the sum of
/// the lengths, and launches as many blocks as there can be segments. A kernel of one block makes the list of them
/// (common/tile/packed_segments.cuh), in the order in which the card is to start them. Those that another one follows
/// are all of full length and come first, then the ends of all sequences, the longest ones first. What starts last is
/// then short, and the multiprocessors end at about the same time.
/// Grows out of: 02_chunkwise/linear_attention/9_segments.cu
/// Improves on: `segments` needs sequences of one length. Shorter ones must be padded, and the padding is loaded,
/// multiplied and stored.
/// Unchanged: the products, the three kernels, precision.
/// Equation:
///
///   the one of `linear_attention` in each sequence: S_0 = initial_state[n] before position cu_seqlens[n]
///
/// Shapes: q, k [1, H, L, Dk], v, o [1, H, L, Dv] bf16 with the positions of all N sequences; states [N, H, Dk, Dv]
/// fp32; cu_seqlens [N + 1] int32; the list, [L / length + N] of 16 bytes; all in device memory.
/// Thread mapping: kernels 1 and 3 as `segments`, one block per segment, head and tile of Dv. Kernel 2 has one thread
/// per element of the state of each sequence that has several segments. One block makes the list.
/// Resources: as `segments`.
/// Bytes: of q, k, v and o as they are, without padding. K and V of segments that another one follows are read twice.
/// Bound by: as `segments`.
/// Requires: what `tensor_core` requires.
/// Weakness: the list costs a launch before the first load. A block that walks a single short sequence has little to
/// overlap its loads with.
/// Sources: the layout and its name are FlashAttention's (Dao-AILab, `flash_attn_varlen_func`).
/// flash-linear-attention's kernels take the same `cu_seqlens`; its list of chunks is made on the host.

#include <cuda_runtime.h>

#include "02_chunkwise/packed.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/carry_sequences.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/column_products.cuh"
#include "common/tile/load_state.cuh"
#include "common/tile/load_tile_async.cuh"
#include "common/tile/masked_scores.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/store_output.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;           // chunks in shared memory
constexpr int kPipelineDepthForStates = 3;  // the same, in kernel 1

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes + kChunk* kChunk * sizeof(__nv_bfloat16);

/// Kernel 1: the sum of k_t^T v_t of every segment that another one follows. Their chunks are all whole. Grid
/// packed_grid() of them.
/// @param states [plan.states, H, Dk, Dv]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    segment_states_kernel(Bf16Arguments a, PackedPlan plan, float* states) {
  const PackedPart<Shape> part(extents_of(a), plan);
  if (part.sequence < 0) return;  // an entry that no sequence has
  const int h = part.h, begin = part.begin, first_column = part.first_column, columns = part.columns;
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int n) {
    return StateTiles<Shape>(memory + n % kPipelineDepthForStates * StateTiles<Shape>::kBytes);
  };
  const int chunks = plan.length / kChunk;
  const auto load = [&](int n) {
    if (n < chunks) {
      const StateTiles<Shape> tiles = tiles_of(n);
      const int t = begin + (chunks - 1 - n) * kChunk;  // from the segment's end to its beginning
      load_tile_async(tiles.K, a.k.row(0, h, t), a.k.stride_l, kChunk, a.Dk);
      load_tile_async(tiles.V, a.v.row(0, h, t) + first_column, a.v.stride_l, kChunk, columns);
    }
    cp_async_commit();  // an empty group near the end keeps the count right
  };
  load(0);
  load(1);
  typename Shape::State S = {};
  for (int n = 0; n < chunks; ++n) {
    cp_async_wait<1>();
    __syncthreads();
    load(n + 2);
    update_state<Shape>(S, tiles_of(n).K, tiles_of(n).V);
  }
  store_state<Shape>(states + part.state(extents_of(a), part.entry), S, a.Dv, a.Dk, columns);
}

/// Kernel 3. Grid packed_grid() of all segments.
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) walk_kernel(Bf16Arguments a, PackedPlan plan) {
  const PackedPart<Shape> part(extents_of(a), plan);
  if (part.sequence < 0) return;
  const int n = part.sequence, h = part.h, begin = part.begin, end = part.end;
  const int first_column = part.first_column, columns = part.columns;
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) {
    return ChunkTiles<Shape>(memory + t / kChunk % kPipelineDepth * ChunkTiles<Shape>::kBytes);
  };
  const typename Shape::ScoreTile P{
      reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes)};

  const auto load = [&](int t) {
    const ChunkTiles<Shape> tiles = tiles_of(t);
    const int rows = end - t, batch = hide_from_compiler(0);
    load_tile_async(tiles.Q, a.q.row(batch, h, t), a.q.stride_l, rows, a.Dk);
    load_tile_async(tiles.K, a.k.row(batch, h, t), a.k.stride_l, rows, a.Dk);
    load_tile_async(tiles.V, a.v.row(batch, h, t) + first_column, a.v.stride_l, rows, columns);
    cp_async_commit();
  };
  if (begin < end) load(begin);

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(n, h, 0) + first_column : nullptr;
  if (part.start >= 0) start = plan.starts + part.state(extents_of(a), part.start);
  load_state<Shape>(S, start, part.start >= 0 ? a.Dv : a.initial_state.stride_l, a.Dk, columns);

  for (int t = begin; t < end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < end) load(t + kChunk);
    const ChunkTiles<Shape> tiles = tiles_of(t);
    typename Shape::Output O = {};
    masked_scores<Shape>(P, tiles.Q, tiles.K);
    add_from_state<Shape>(O, tiles.Q, S);
    __syncthreads();
    add_from_scores<Shape>(O, P, tiles.V);
    update_state<Shape>(S, tiles.K, tiles.V);
    store_output<Shape>(a.o.row(hide_from_compiler(0), h, t) + first_column, a.o.stride_l, end - t, columns, O, tiles.V,
                        a.scale);
  }
  if (part.entry >= plan.states && a.final_state.data) {
    store_state<Shape>(a.final_state.row(n, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void packed_walk(const PackedBf16Arguments& p, PackedPlan plan) {
  const Bf16Arguments& a = p.all;
  const Extents extents = extents_of(a);
  plan.segments = list_segments(p.cu_seqlens, plan);
  select_shape(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    if (plan.states > 0) {
      const auto elements = std::size_t(plan.states) * a.H * a.Dk * a.Dv;
      float* states = workspace<float>("linear_attention: states", elements);
      launch(segment_states_kernel<Shape>,
             {packed_grid<Shape>(extents, plan.states), kThreads, kPipelineDepthForStates * StateTiles<Shape>::kBytes},
             a, plan, states);
      carry_sequences(a.initial_state, plan, extents, NoDecay(), states);
      plan.starts = states;
    }
    launch(walk_kernel<Shape>, {packed_grid<Shape>(extents, plan.entries()), kThreads, kSharedBytes<Shape>}, a, plan);
  });
}

void packed_walk(const PackedBf16Arguments& p) {
  packed_walk(p, packed_plan(extents_of(p.all), p.N));
}

}  // namespace tutorial::linear_attention
