/// @file
/// `dispatch` of gla on packed sequences: what a user calls.
///
/// Idea: chapter 02's list of segments, which begin where the sequences do, longest first
/// (common/tile/packed_segments.cuh), and the walks of `segments` over them. What prepare() leaves of a chunk lies at the
/// number that the chunk has among those of all sequences (common/tile/packed_chunks.cuh). Positions behind the end of a
/// sequence, whoever they belong to, get a key of 0 and gates of 1 there, as behind the last one of all. So the walks need
/// only know where V ends.
/// Improves on: `segments` needs sequences of one length.
/// Unchanged: the products, the walks, and what they require.
/// Fallback: what the walks do not support goes to dispatch, one sequence after the other. Then the host reads cu_seqlens
/// and waits for it, which a CUDA graph that is being captured refuses.
/// Weakness: on Hopper this is mma by warps, and not the walk of `warpgroup_walk`; chapter 04 has one by warpgroups.

#include <cuda_runtime.h>

#include "03_gla/gla/dispatch/prepared_chunks.hpp"
#include "03_gla/gla/prepare_sub_chunk.cuh"
#include "03_gla/gla/prepared_tiles.cuh"
#include "03_gla/gla_packed/dispatch/prepare.hpp"
#include "03_gla/packed.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/block_columns.hpp"
#include "common/tile/carry.cuh"
#include "common/tile/carry_sequences.cuh"
#include "common/tile/packed_chunks.cuh"
#include "common/tile/packed_segments.cuh"
#include "common/tile/packed_states.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/sequences_alone.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/walk_sub_chunk.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kShortest = 16 * kChunk;  // positions of a segment: a shorter walk ends before states were carried
constexpr int kPrepareThreads = 32 * kSubChunks;
constexpr int kPipelineDepth = 2;           // chunks in shared memory
constexpr int kPipelineDepthForStates = 3;  // the same, in the kernel for the states

/// What prepare() does, for each chunk of each sequence. Grid (numbers of chunks, H).
template <int kElements>
__global__ void __launch_bounds__(kPrepareThreads, 3)
    packed_prepare_kernel(Bf16Arguments a, const std::int32_t* cu_seqlens, int sequences, Prepared out) {
  const int number = int(blockIdx.x), h = int(blockIdx.y), sub_chunk = warp_index();
  const PackedChunk chunk(cu_seqlens, sequences, number);
  if (chunk.begin == chunk.end) return;
  a.L = chunk.end;
  prepare_sub_chunk<kElements>(a, out, 0, h, chunk.begin + sub_chunk * kSubChunk,
                               (std::int64_t(h) * out.N + number) * kSubChunks + sub_chunk);
}

/// What was prepared, where the chunk of the sequence that begins at position t has number t / 64 of its head.
__device__ __forceinline__ Prepared of_sequence(Prepared prepared, int n, int Dk) {
  prepared.q += std::int64_t(n) * kChunk * Dk;
  prepared.k += std::int64_t(n) * kChunk * Dk;
  prepared.decays += std::int64_t(n) * kSubChunks * Dk;
  prepared.scores += std::int64_t(n) * kChunk * kSubChunk;
  return prepared;
}

/// The states and decays of every segment that another one follows. Grid packed_grid() of them.
/// @param states [plan.states, H, Dk, Dv] @param decays [plan.states, H, Dk]
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    packed_states_kernel(Bf16Arguments a, Prepared prepared, PackedPlan plan, float* states, float* decays) {
  const PackedPart<Shape> part(extents_of(a), plan);
  if (part.sequence < 0) return;
  prepared = of_sequence(prepared, part.sequence, a.Dk);
  const auto tiles_of = [&](int t) {
    return DecayedTiles<Shape>(dynamic_shared<unsigned char>() +
                               t / kChunk % kPipelineDepthForStates * DecayedTiles<Shape>::kBytesForStates);
  };
  const auto load = [&](int t) {
    if (t < part.end) {
      load_for_states(tiles_of(t), a, prepared, hide_from_compiler(0), part.h, t, part.first_column, part.columns);
    }
    cp_async_commit();  // near the end an empty group keeps the count right
  };
  load(part.begin);
  load(part.begin + kChunk);
  typename Shape::State S = {};
  constexpr int kRows = (Shape::kDk + kThreads - 1) / kThreads;  // of the state: the thread multiplies their decays
  float decay[kRows];
#pragma unroll
  for (float& x : decay) x = 1;
  for (int t = part.begin; t < part.end; t += kChunk) {
    cp_async_wait<1>();
    __syncthreads();
    load(t + 2 * kChunk);
    const DecayedTiles<Shape> tiles = tiles_of(t);
    float O[Shape::kWarpColumns / 8][4];  // unused
#pragma unroll 1
    for (int row = 0; row < kChunk; row += kSubChunk) walk_sub_chunk<Shape, false>(S, O, tiles, row);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int d = int(threadIdx.x) + i * kThreads;
      for (int r = 0; d < Shape::kDk && r < kSubChunks; ++r) decay[i] *= tiles.decays[r * Shape::kDk + d];
    }
  }
  store_state<Shape>(states + part.state(extents_of(a), part.entry), S, a.Dv, a.Dk, part.columns);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int d = int(threadIdx.x) + i * kThreads;
    if (part.first_column == 0 && d < a.Dk) {
      store_global(decays + (std::int64_t(part.entry) * a.H + part.h) * a.Dk + d, decay[i]);
    }
  }
}

/// Walks all segments. Grid packed_grid() of them.
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1)
    packed_walk_kernel(Bf16Arguments a, Prepared prepared, PackedPlan plan) {
  const PackedPart<Shape> part(extents_of(a), plan);
  if (part.sequence < 0) return;
  const int n = part.sequence, h = part.h, begin = part.begin, end = part.end;
  const int first_column = part.first_column, columns = part.columns;
  a.L = end;  // V ends here
  prepared = of_sequence(prepared, n, a.Dk);
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) {
    return DecayedTiles<Shape>(memory + t / kChunk % kPipelineDepth * DecayedTiles<Shape>::kBytes);
  };

  const auto load = [&](int t) {
    const DecayedTiles<Shape> tiles = tiles_of(t);
    load_for_states(tiles, a, prepared, hide_from_compiler(0), h, t, first_column, columns);
    load_for_outputs(tiles, a, prepared, hide_from_compiler(0), h, t);
    cp_async_commit();
  };
  if (begin < end) load(begin);

  typename Shape::State S;
  const ConstRows start = start_of(a, part, plan);
  load_state<Shape>(S, start.data, start.stride, a.Dk, columns);

  for (int t = begin; t < end; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < end) load(t + kChunk);
    const DecayedTiles<Shape> tiles = tiles_of(t);
#pragma unroll 1
    for (int row = 0; row < kChunk; row += kSubChunk) {
      float O[Shape::kWarpColumns / 8][4] = {};
      walk_sub_chunk<Shape, true>(S, O, tiles, row);
      put_output<Shape>(tiles.V, O, row, a.scale);
    }
    store_warp_columns<Shape>(a.o.row(hide_from_compiler(0), h, t) + first_column, a.o.stride_l, end - t, columns,
                              tiles.V);
  }
  if (part.entry >= plan.states && a.final_state.data) {
    store_state<Shape>(a.final_state.row(n, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

PackedPlan plan_of(const PackedBf16Arguments& p) {
  return packed_plan(extents_of(p.all), p.N, widest_tile(extents_of(p.all)), kShortest);
}

std::int64_t decays_of(const PackedBf16Arguments& p, const PackedPlan& plan) {
  return std::int64_t(plan.states) * p.all.H * p.all.Dk;
}

}  // namespace

Prepared prepare(const PackedBf16Arguments& p) {
  const Bf16Arguments& a = p.all;
  const Prepared prepared = reserve_prepared(a, packed_chunks(extents_of(a), p.N));
  const auto kernel = a.Dk <= 64 ? packed_prepare_kernel<2> : packed_prepare_kernel<4>;
  launch(kernel, {dim3(unsigned(prepared.N), unsigned(a.H)), kPrepareThreads}, a, p.cu_seqlens, p.N, prepared);
  return prepared;
}

void dispatch_packed(const PackedBf16Arguments& p) {
  const Bf16Arguments& a = p.all;
  if (!subchunk_walk_unsupported(a).empty()) {
    return for_each_sequence(p, [](const Bf16Arguments& sequence) { dispatch(sequence); });
  }
  const Extents extents = extents_of(a);
  PackedPlan plan = plan_of(p);
  plan.segments = list_segments(p.cu_seqlens, plan);
  const Prepared prepared = prepare(p);
  select_shape(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    if (plan.states > 0) {
      const auto rows = std::size_t(decays_of(p, plan));
      float* states = workspace<float>("gla: states of segments", rows * std::size_t(a.Dv));
      float* decays = workspace<float>("gla: decays of segments", rows);
      launch(packed_states_kernel<Shape>,
             {packed_grid<Shape>(extents, plan.states), kThreads,
              kPipelineDepthForStates * std::size_t(DecayedTiles<Shape>::kBytesForStates)},
             a, prepared, plan, states, decays);
      carry_sequences(a.initial_state, plan, extents, RowDecay<1>{decays, a.Dk}, states);
      plan.starts = states;
    }
    launch(packed_walk_kernel<Shape>,
           {packed_grid<Shape>(extents, plan.entries()), kThreads, kPipelineDepth * DecayedTiles<Shape>::kBytes}, a,
           prepared, plan);
  });
}

std::string dispatch_packed_unsupported(const PackedBf16Arguments& p) {
  if (!subchunk_walk_unsupported(p.all).empty()) return dispatch_unsupported(p.all);
  return packed_plan_unsupported(extents_of(p.all), plan_of(p));
}

std::string dispatch_packed_note(const PackedBf16Arguments& p) {
  if (const std::string reason = subchunk_walk_unsupported(p.all); !reason.empty()) {
    return "dispatch, one sequence after the other: " + reason;
  }
  const PackedPlan plan = plan_of(p);
  const std::string segments =
      plan.states > 0 ? "segments of " + std::to_string(plan.length) + " positions at most, " : "";
  return "packed, " + segments + std::to_string(plan.columns) + " columns per block";
}

std::int64_t dispatch_packed_memory(const PackedBf16Arguments& p) {
  const Bf16Arguments& a = p.all;
  if (!subchunk_walk_unsupported(a).empty()) return dispatch_memory(a);
  const Extents extents = extents_of(a);
  const PackedPlan plan = plan_of(p);
  return prepared_memory(a, packed_chunks(extents, p.N)) + packed_plan_memory(extents, plan) +
         std::int64_t(sizeof(float)) * decays_of(p, plan);
}

}  // namespace tutorial::gla
