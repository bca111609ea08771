#pragma once
/// @file
/// Walks in runs of segments. A run begins with the state that the run before it has left, so no kernel has to compute
/// states before the walks.
///
/// There are as many blocks as multiprocessors, and a block takes the numbers of its runs from a counter, one after the
/// other, because CUDA does not say in which order blocks start. The first runs of all walks have the lowest numbers,
/// then the second runs, and so on. A block computes its runs in the order of their numbers, so the lowest run that has
/// not ended waits for none. If there are at least as many walks as multiprocessors, the run before has usually ended
/// when a run begins, and no block waits at all.
///
/// At the end of each segment the walk of dq writes S to memory, and that of dv writes dS / scale. The sum for dg starts
/// anew from both. The states at the end of a run are also what the next run begins with. The walk of dk holds dS, too:
/// it begins with what the blocks of dv have written.

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "04_fused_chunk/simple_gla_backward/cut.hpp"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
#include "04_fused_chunk/simple_gla_backward/segments.cuh"
#include "common/ceil_div.hpp"
#include "common/device/atomic.cuh"
#include "common/device/error.hpp"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/stream.hpp"
#include "common/device/tensor_map.hpp"
#include "common/device/warp.cuh"
#include "common/device/workspace.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

/// How the walks are cut, and what their blocks share.
struct Runs {
  static constexpr int kWriters = 8;  ///< warps that write a state, at most: four for each 64 of up to 128 columns

  Cut cut;
  float *S = nullptr, *dS = nullptr;  ///< [B, H, segments - 1, Dk, Dv], each in the order of its walk; dS / scale
  unsigned* counter = nullptr;        ///< runs that have been taken; behind it a flag per state and warp that writes it

  /// The number of words that begin as 0: 0 if no run waits for another.
  std::int64_t words(std::int64_t heads) const {
    return cut.are_given || cut.runs() == 1 ? 0 : 1 + 2 * heads * (cut.plan.segments - 1) * kWriters;
  }

  /// The number of the next run of this block. Called by one thread. @param last the number of the run before, or -1
  __device__ __forceinline__ int take(int last) const {
    if (counter) return int(atomicAdd(counter, 1u));
    return last < 0 ? int(blockIdx.x) : last + int(gridDim.x);
  }
  /// Where a state lies. @param is_S or dS @param place of the state, [B, H, segments - 1]
  __device__ __forceinline__ float* state(bool is_S, std::int64_t place, int elements) const {
    return (is_S ? S : dS) + place * elements;
  }
  /// The flags of its writers.
  __device__ __forceinline__ unsigned* flags(bool is_S, int heads, std::int64_t place) const {
    return counter + 1 + ((is_S ? 0 : std::int64_t(heads) * (cut.plan.segments - 1)) + place) * kWriters;
  }
};

/// A gradient with its tensor maps.
struct MappedGradient {
  Gradient gradient;
  ChunkMaps maps;
  TensorMap output, partner;  ///< without a partner, the map of another tensor
};

/// All walks, as the kernel gets them.
struct GradientWalks {
  MappedGradient of[3];
  Runs runs;
  int count;                    ///< of the runs of all walks
  float* products[3];           ///< the gradients' RowProducts; those of dv are computed, but not stored
  View<const float> end_state;  ///< what S is multiplied with at the end of the walk of dq; its data is null if it is 0
  float* end_products;          ///< a part of this product per warp: [B, H, tiles, kWarps]

  /// The number of words that are 0 when the kernel begins.
  std::int64_t words() const { return runs.words(std::int64_t(of[0].gradient.a.B) * of[0].gradient.a.H); }
};

/// The number of runs of all walks. One that is not cut is a run.
inline std::int64_t runs_of_all(const Bf16BackwardArguments& b, const Cut& cut) {
  const std::int64_t walks = std::int64_t(b.B) * b.H * (2 * ceil_div(b.Dk, 64) + ceil_div(b.Dv, 64));
  return (walks - cut.whole) * cut.runs() + cut.whole;
}

/// The counter and the flags: words that are 0 between calls. The kernel for dg, the last of a call, sets them back.
/// They are set here only where their memory is new, because each call would wait for it. After a call that failed
/// between its kernels they are not zeros any more.
inline unsigned* words_of_zeros(std::int64_t count) {
  constexpr std::string_view kTag = "simple_gla --backward: runs";
  const std::size_t bytes = std::size_t(count) * sizeof(unsigned);
  const bool is_new = workspace_size(kTag) < bytes;
  auto* words = workspace<unsigned>(kTag, std::size_t(count));
  if (is_new) check(cudaMemsetAsync(words, 0, bytes, current_stream()));
  return words;
}

/// The walks of a problem in segments.
inline GradientWalks make_walks(const Segments& segments, const Cut& cut) {
  const auto mapped = [&](int i) {
    const Gradient& g = segments.gradients[i];
    const View<const __nv_bfloat16> partner = g.partner.data ? g.partner : g.a.v;
    return MappedGradient{g, chunk_maps(g.a), output_map(g.a), tile_map(partner, tensor_sizes(g.a, g.a.Dv), kChunk)};
  };
  GradientWalks walks{
      {mapped(0), mapped(1), mapped(2)}, Runs{cut, segments.S, segments.dS},
      int(runs_of_all(segments.b, cut)), {segments.products.of(0), segments.products.of(1), segments.products.of(0)},
      segments.b.dfinal_state,           segments.end_products};
  if (const std::int64_t words = walks.words(); words > 0) walks.runs.counter = words_of_zeros(words);
  return walks;
}

/// The part of the walks that a run has.
struct RunPart {
  int which;                  ///< the number of the gradient
  int b, h, head;             ///< batch entry, head of it, head of all: b H + h
  int first, last;            ///< the run's segments in the order of the walk
  int chunks;                 ///< the run's
  int start, step;            ///< the first position of its first chunk, from there to that of the next
  int tile;                   ///< of 64 columns of the gradient
  int first_column, columns;  ///< the columns that exist

  /// @param number of the run
  __device__ __forceinline__ RunPart(const GradientWalks& walks, int number) {
    const Runs& runs = walks.runs;
    const auto tiles = [&](int i) { return (walks.of[i].gradient.a.Dv - 1) / 64 + 1; };
    const Bf16Arguments& a = walks.of[0].gradient.a;
    const Cut& cut = runs.cut;
    const int each = tiles(0) + tiles(1) + tiles(2), divided = a.B * a.H * each - cut.whole;
    int walk, run = 0;
    if (number < cut.early) {
      walk = number;
    } else if (number < cut.early + divided) {
      walk = number - cut.early + cut.whole;
    } else if (number < cut.whole + divided) {
      walk = number - divided;
    } else {
      const int later = number - cut.whole - divided;
      walk = cut.whole + later % divided;
      run = 1 + later / divided;
    }
    head = walk / each;
    b = head / a.H;
    h = head % a.H;
    tile = walk % each;
    for (which = 0; tile >= tiles(which); ++which) tile -= tiles(which);
    first = run * cut.each;
    last = min(walk < cut.whole ? cut.plan.segments : first + cut.each, cut.plan.segments) - 1;
    const int begin = (is_reversed() ? runs.cut.plan.segments - 1 - last : first) * runs.cut.plan.length;
    chunks = (min((last - first + 1) * runs.cut.plan.length, a.L - begin) - 1) / kChunk + 1;
    step = is_reversed() ? -kChunk : kChunk;
    start = begin + (is_reversed() ? (chunks - 1) * kChunk : 0);
    first_column = tile * 64;
    columns = min(64, walks.of[which].gradient.a.Dv - first_column);
  }
  /// Whether the walk goes from the end, as those of dk and dv do.
  __device__ __forceinline__ bool is_reversed() const { return which > 0; }
  /// The number of chunks of a segment. @param order its number in the order of the walk
  __device__ __forceinline__ int chunks_of(const GradientWalks& walks, int order) const {
    const LaunchPlan& plan = walks.runs.cut.plan;
    const int segment = is_reversed() ? plan.segments - 1 - order : order;
    return (min(plan.length, walks.of[0].gradient.a.L - segment * plan.length) - 1) / kChunk + 1;
  }
};

/// The numbers of the runs that a block has taken, in shared memory: one thread takes them, all others get them here.
struct TakenRuns {
  static constexpr int kPlaces = 1;

  Barrier full[kPlaces], empty[kPlaces];
  int numbers[kPlaces];

  /// By the thread that initialises the block's barriers. @param readers warps that call for_each_run()
  __device__ __forceinline__ void init(unsigned readers) {
    for (int i = 0; i < kPlaces; ++i) full[i].init(1), empty[i].init(readers);
  }
};

/// Takes runs until there are none, and calls f(RunPart) for each. Called by one thread, that which loads. Its call of f
/// ends when all loads are under way, so that the next run's follow at once.
template <class F>
__device__ __forceinline__ void take_runs(const GradientWalks& walks, TakenRuns& taken, F f) {
  auto ring = Ring<TakenRuns::kPlaces>::producer();
  for (int number = -1;;) {
    number = walks.runs.take(number);
    ring.wait(taken.empty);
    taken.numbers[ring.stage()] = number;
    taken.full[ring.stage()].arrive();
    ring.advance();
    if (number >= walks.count) return;
    f(RunPart(walks, number));
  }
}

/// Calls f(RunPart) for each run that the block has taken. Called by a warp.
/// @tparam kIsWarp false: by its lane 0 alone
template <bool kIsWarp = true, class F>
__device__ __forceinline__ void for_each_run(const GradientWalks& walks, TakenRuns& taken, F f) {
  auto ring = Ring<TakenRuns::kPlaces>::consumer();
  for (;;) {
    ring.wait(taken.full);
    const int number = taken.numbers[ring.stage()];
    if (kIsWarp) __syncwarp();  // all lanes have read it
    if (lane_index() == 0) taken.empty[ring.stage()].arrive();
    ring.advance();
    if (number >= walks.count) return;
    f(RunPart(walks, number));
  }
}

/// How the states at borders lie in memory, as this gradient's state. The stride is hidden, so that the compiler does
/// not keep the addresses of all elements in registers during the walk.
__device__ __forceinline__ StateStrides border_strides(const Gradient& g) {
  return g.strides(hide_from_compiler(g.is_transposed ? g.a.Dk : g.a.Dv));
}

/// S = the state that a run begins with, in the warpgroup of the state.
template <int kDk>
__device__ __forceinline__ void load_start(WarpgroupState<kDk>& S, const GradientWalks& walks, const RunPart& part) {
  const Gradient& g = walks.of[part.which].gradient;
  const Bf16Arguments& a = g.a;
  if (part.first == 0) {
    const StateStrides strides = g.strides(a.initial_state.stride_l);
    const float* from = a.initial_state.data ? a.initial_state.row(part.b, part.h, 0) : nullptr;
    load_group_state<kDk>(S, from ? from + part.first_column * strides.column : nullptr, strides, a.Dk, part.columns);
#pragma unroll
    for (float& element : S) element *= g.start_factor;
    return;
  }
  const Runs& runs = walks.runs;
  const bool is_S = part.which == 0;
  const std::int64_t border = std::int64_t(part.head) * (runs.cut.plan.segments - 1) + part.first - 1;
  if (runs.counter) {  // the writers are those of dq or dv
    const int writers = ((is_S ? a.Dv : walks.of[2].gradient.a.Dv) - 1) / 64 * 4 + 4;
    const unsigned* flags = runs.flags(is_S, a.B * a.H, border);
    if (int(lane_index()) < writers) wait_until(flags + lane_index(), [](unsigned flag) { return flag != 0; });
    __syncwarp();
  }
  const StateStrides strides = border_strides(g);
  const float* from = runs.state(is_S, border, a.Dk * a.Dv) + part.first_column * strides.column;
#pragma unroll
  for (float& element : S) element = 0;
  for_each_state_element<kDk>(S, from, strides, a.Dk, part.columns,  // may have been written in this kernel
                              [](float& element, const float* address) { element = *address; });
}

/// Leaves the state at the end of a segment in memory, unless it is there already or another walk leaves it. At the end
/// of a run it also tells the run that follows.
/// @param order the segment in the order of the walk
template <int kDk>
__device__ __forceinline__ void pass_on_state(WarpgroupState<kDk>& S, const GradientWalks& walks, const RunPart& part,
                                              int order) {
  const Runs& runs = walks.runs;
  const int borders = runs.cut.plan.segments - 1;
  if (runs.cut.are_given || part.which == 1 || order == borders) return;
  const Gradient& g = walks.of[part.which].gradient;
  const Bf16Arguments& a = g.a;
  const bool is_S = part.which == 0;
  const std::int64_t border = std::int64_t(part.head) * borders + order;
  const StateStrides strides = border_strides(g);
  store_group_state<kDk>(runs.state(is_S, border, a.Dk * a.Dv) + part.first_column * strides.column, S, strides,
                         hide_from_compiler(a.Dk), hide_from_compiler(part.columns));
  if (order < part.last) return;
  __syncwarp();
  unsigned* flag = runs.flags(is_S, a.B * a.H, border) + part.tile * 4 + warp_in_group();
  if (lane_index() == 0) store_release(flag, 1u);
}

/// Brings the block's share of the states at borders to the second-level cache, where the kernel for dg finds them: most
/// were written long ago. Called by a warpgroup that has no more runs.
__device__ __forceinline__ void prefetch_states(const GradientWalks& walks) {
  constexpr int kLine = 128 / sizeof(float);
  const Bf16Arguments& a = walks.of[0].gradient.a;
  const std::int64_t states = 2 * std::int64_t(a.B) * a.H * (walks.runs.cut.plan.segments - 1);  // of S, then of dS
  const std::int64_t first = std::int64_t(blockIdx.x) * kWarpgroup + threadIdx.x % kWarpgroup;
  for (std::int64_t i = first * kLine; i < states * a.Dk * a.Dv; i += std::int64_t(gridDim.x) * kWarpgroup * kLine) {
    prefetch_global(walks.runs.S + i);
  }
}

/// What becomes of the state at the end of a walk: a part of <S_L, dfinal_state>, or dinitial_state.
template <int kDk>
__device__ __forceinline__ void finish_walk(WarpgroupState<kDk>& S, const GradientWalks& walks, const RunPart& part) {
  const Gradient& g = walks.of[part.which].gradient;
  const Bf16Arguments& a = g.a;
  if (part.which == 0 && walks.end_state.data) {
    const StateStrides strides = g.strides(walks.end_state.stride_l);
    WarpgroupState<kDk> end;
    load_group_state<kDk>(end, walks.end_state.row(part.b, part.h, 0) + part.first_column * strides.column, strides,
                          a.Dk, part.columns);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kDk / 2; ++i) sum += S[i] * end[i];
    sum = warp_sum(sum);
    const int tiles = (a.Dv - 1) / 64 + 1;
    float* to = walks.end_products + (std::int64_t(part.head) * tiles + part.tile) * 4 + warp_in_group();
    if (lane_index() == 0) store_global(to, sum);
  }
  if (a.final_state.data) {
#pragma unroll
    for (float& element : S) element *= a.scale;
    store_group_state<kDk>(a.final_state.row(part.b, part.h, 0) + part.first_column, S, a.final_state.stride_l, a.Dk,
                           part.columns);
  }
}

}  // namespace
}  // namespace tutorial::simple_gla
