#pragma once
/// @file
/// Segments of the two walks of `--backward` by warpgroups: what each of them does to S and dS, and what each starts from.
///
/// A segment turns S into G S + Psi S + H, with the product of its gates G (gated_delta_rule/dispatch/segments.cu). The
/// adjoint of that is all that the walk from the end needs to know of a segment: it turns dS into G dS + Psi^T dS + dH.
/// dH is what that walk makes of zeros. So one Psi serves both, transposed:
///
///     segment          0                    1                      2                    3
///     maps        S_0, V -> H_0      V -> H_1, -K -> Psi_1   V -> H_2, -K -> Psi_2                       at once
///                                    dO -> dH_1              dO -> dH_2            dS_L, dO -> dH_3
///     carries              H_0 -----> + Psi_1 . + H_1 ------> + Psi_2 . + H_2       from segment to segment
///                         . + Psi_1^T . + dH_1 <----- . + Psi_2^T . + dH_2 <----- dH_3
///     walks       both               both                   both                  both                   at once
///
/// A map is such a walk, too, of which only the last state is kept. Where gates leave nothing of a state, a segment
/// starts from zeros a few chunks earlier, and needs no map before it (chunk/zero_starts.cuh). Each block finds out from
/// the bounds of chunks. The norm of a transposed matrix is that of the matrix, so they are bounds for both walks.

#include <cuda_runtime.h>

#include <algorithm>

#include "05_deltanet_wy/chunk/segment_maps.cuh"
#include "05_deltanet_wy/chunk/zero_starts.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"
#include "05_deltanet_wy/delta_rule_backward/warpgroup_walks.cuh"

namespace tutorial::delta_rule {
namespace {

/// What a block walks for.
enum class Walk { forwards, backwards, transition };

/// The chunks of a walk: number 0 and those after it leave something behind, those before it are a warm-up.
struct ChunksOfWalk {
  int first, step;     ///< chunk 0, and the distance to the next one
  int warm_up, count;  ///< chunks before number 0, and from there on

  __device__ __forceinline__ int operator[](int i) const { return first + step * i; }
  __device__ __forceinline__ int begin() const { return -warm_up; }
};

/// The segments, and what passes from one to the next. A walk counts segments in its own order. That of the walk from
/// the end is reversed.
template <int kDk>
struct WalkSegments {
  int count, chunks, N;     ///< of a head; of a segment; of a head
  const float* bounds;      ///< of chunks [B, H, N]; null without gates
  float* decays;            ///< G [B, H, count - 1], or [B, H, count - 1, kDk] with a gate per row; null without gates
  SegmentMaps<kDk> starts;  ///< H and Psi, later what segments start from
  float4* adjoint_states;   ///< dH, in the place of H

  __device__ __forceinline__ SegmentMaps<kDk> starts_of(bool is_reversed) const {
    SegmentMaps<kDk> of = starts;
    if (is_reversed) of.states = adjoint_states;
    return of;
  }
  /// The number in the other walk.
  __device__ __forceinline__ int opposite(int segment) const { return count - 1 - segment; }
  /// How many chunks before a segment its walk may start from zeros. 0: with the segment.
  __device__ __forceinline__ int warm_up(int head, int segment, bool is_reversed) const {
    if (bounds == nullptr) return 0;
    const float* of_head = bounds + std::int64_t(head) * N;
    const int begin = is_reversed ? N - min((opposite(segment) + 1) * chunks, N) : segment * chunks;
    return warm_up_of(begin, [&](int n) { return load_for_update(of_head + (is_reversed ? N - 1 - n : n)); });
  }
  /// Whether a segment needs the state that the one before it leaves.
  __device__ __forceinline__ bool needs_past(int head, int segment, bool is_reversed) const {
    return segment > 0 && segment < count && warm_up(head, segment, is_reversed) == 0;
  }
  /// Whether anyone needs what a segment does to a state: its H, or its Psi.
  __device__ __forceinline__ bool is_map_needed(Walk walk, int head, int segment) const {
    const auto passes_on = [&](int segment, bool is_reversed) {
      return needs_past(head, segment, is_reversed) && needs_past(head, segment + 1, is_reversed);
    };
    if (walk == Walk::transition) return passes_on(segment, false) || passes_on(opposite(segment), true);
    return needs_past(head, segment + 1, walk == Walk::backwards);
  }
  /// The chunks of a segment.
  __device__ __forceinline__ ChunksOfWalk chunks_of(int segment, bool is_reversed) const {
    const int begin = (is_reversed ? opposite(segment) : segment) * chunks, end = min(begin + chunks, N);
    return {is_reversed ? end - 1 : begin, is_reversed ? -1 : 1, 0, end - begin};
  }
};

/// A warp has read its part of V or dO, which may then be filled again. Called by all lanes.
__device__ __forceinline__ void end_reads() {
  fence_async_proxy();
  __syncwarp();
}

/// S = factor S.
template <int kSums>
__device__ __forceinline__ void multiply(float (&S)[kSums], float factor) {
#pragma unroll
  for (float& element : S) element *= factor;
}

/// What a block does of a grid (for each segment: tiles of 64 columns of Dv for each walk, and of Dk if kIsMap, H, B).
/// @tparam kIsMap whether it computes what its segment does to a state
template <int kDk, bool kIsMap>
struct BlockOfWalk {
  int b, h, head;
  Walk walk;
  bool is_reversed;
  int tile, first;           ///< of 64 columns; the first column
  int segment, in_sequence;  ///< in the order of the walk, and in that of the sequence
  ChunksOfWalk chunks;
  bool needs_past = false;  ///< whether it starts from a state that comes from the segment before
  bool is_needed = true;

  /// Waits for the kernel before if there are several segments: it may have left bounds and states.
  __device__ __forceinline__ BlockOfWalk(const WalkSegments<kDk>& segments, int H)
      : b(int(blockIdx.z)), h(int(blockIdx.y)), head(b * H + h) {
    const int tiles = segments.starts.tiles, of_segment = 2 * tiles + (kIsMap ? kDk / kColumns : 0);
    const int number = int(blockIdx.x) % of_segment;
    walk = number < tiles ? Walk::forwards : number < 2 * tiles ? Walk::backwards : Walk::transition;
    is_reversed = walk == Walk::backwards;
    tile = number - int(walk) * tiles, first = tile * kColumns;
    in_sequence = int(blockIdx.x) / of_segment;
    segment = is_reversed ? segments.opposite(in_sequence) : in_sequence;
    chunks = segments.chunks_of(segment, is_reversed);
    if (segments.count == 1) return;
    wait_for_previous_kernel();
    if (kIsMap) is_needed = segments.is_map_needed(walk, head, segment);
    if (walk != Walk::transition) chunks.warm_up = segments.warm_up(head, segment, is_reversed);
    needs_past = !kIsMap && segment > 0 && chunks.warm_up == 0;
    if (!kIsMap) return;
    chunks.first += chunks.step * chunks.count;  // nothing but the last state is left of a map's walk
    chunks.warm_up += chunks.count;
    chunks.count = 0;
  }

  /// S, or dS / scale, as the walk starts.
  __device__ __forceinline__ void load_state(WarpgroupState<kDk>& S, const Bf16BackwardArguments& g,
                                             const WalkSegments<kDk>& segments) const {
    if (needs_past) return segments.starts_of(is_reversed).load_start(S, arguments(g), {b, h, segment, tile});
    const View<const float> from = is_reversed ? g.dfinal_state : g.initial_state;
    const bool is_there = segment == 0 && walk != Walk::transition && from.data;
    load_group_state<kDk>(S, is_there ? from.row(b, h, 0) + first : nullptr, from.stride_l, g.Dk, g.Dv - first);
    if (is_reversed) multiply(S, 1 / g.scale);
  }
  /// Stores what is wanted of the state at the walk's end.
  __device__ __forceinline__ void store_state(WarpgroupState<kDk>& S, const Bf16BackwardArguments& g,
                                              const WalkSegments<kDk>& segments) const {
    if (kIsMap) {
      const SegmentMaps<kDk> maps = segments.starts_of(is_reversed);
      const Columns columns{b, h, segment, tile};
      walk == Walk::transition ? maps.store_transition(arguments(g), columns, S)
                               : maps.store_state(arguments(g), columns, S);
    } else if (is_reversed && in_sequence == 0 && g.dinitial_state.data) {
      multiply(S, g.scale);
      store_group_state<kDk>(g.dinitial_state.row(b, h, 0) + first, S, g.dinitial_state.stride_l, g.Dk, g.Dv - first);
    }
  }

 private:
  /// What the maps ask of them: how many heads there are.
  static __device__ __forceinline__ Bf16Arguments arguments(const Bf16BackwardArguments& g) {
    Bf16Arguments a{};
    a.H = g.H;
    return a;
  }
};

/// What the thread does that stores v_new or dV.
/// @param errors where rounding errors of v_new go as they come; null if none come
template <class Shape>
__device__ __forceinline__ void store_rows(const TensorMap& map, const TensorMap* errors,
                                           const StoredTiles<Shape>& stored, WalkBarriers& barriers,
                                           const ChunksOfWalk& chunks, int first) {
  const int h = int(blockIdx.y), b = int(blockIdx.z);
  auto ring = Ring<1>::consumer();
  const auto store = [&](const TensorMap& to, int n) {
    store_tile(to, stored.rows.data, {.column = first, .position = n * kChunk, .head = h, .batch = b});
    commit_stores();
    wait_stores_read<0>();
    barriers.rows_empty[0].arrive();
    ring.advance();
  };
  for (int i = 0; i < chunks.count; ++i) {
    ring.wait(barriers.rows_full);
    const bool errors_follow = errors && barriers.errors_follow;
    store(map, chunks[i]);
    if (!errors_follow) continue;
    ring.wait(barriers.rows_full);
    store(*errors, chunks[i]);
  }
}

/// What is left of a state after a segment, beside Psi S + H, without gates or with one per position; and which segments
/// need their past.
template <int kDk>
class KeptWithOneGate {
 public:
  __device__ __forceinline__ KeptWithOneGate(const WalkSegments<kDk>& segments, bool is_reversed)
      : segments_(segments), is_reversed_(is_reversed) {}

  __device__ __forceinline__ bool begin(int head) {
    head_ = head;
    needy_ = __ballot_sync(kAllLanes, segments_.needs_past(head, int(lane_index()), is_reversed_));
    return needy_ != 0;
  }
  __device__ __forceinline__ bool needs_past(int segment) const { return needy_ >> segment & 1; }
  __device__ __forceinline__ void load(int segment) {
    if (segments_.decays && needs_past(segment)) decay_ = load_for_update(decays_of(segment, 1));
  }
  template <int kSums>
  __device__ __forceinline__ void add(float (&S)[kSums], const float (&H)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) S[i] = decay_ * S[i] + H[i];
  }

 protected:
  /// G of a segment of the head. @param rows how many
  __device__ __forceinline__ const float* decays_of(int segment, int rows) const {
    const int in_sequence = is_reversed_ ? segments_.opposite(segment) : segment;
    return segments_.decays + (std::int64_t(head_) * (segments_.count - 1) + in_sequence) * rows;
  }

 private:
  const WalkSegments<kDk>& segments_;
  const bool is_reversed_;
  int head_ = 0;
  unsigned needy_ = 0;  // a bit for each segment
  float decay_ = 1;
};

/// Starts early. Grid (tiles of 64 columns of Dv for each walk, H, B).
/// @tparam Kept KeptWithOneGate, or one that has its members
template <class Shape, class Kept>
__global__ void __launch_bounds__(kCarryThreads, 1)
    carry_both_ways_kernel(Bf16Arguments a, const __grid_constant__ TensorMap transitions,
                           const __grid_constant__ WalkSegments<Shape::kDk> segments) {
  let_next_kernel_start();
  const int tiles = segments.starts.tiles;
  const bool is_reversed = int(blockIdx.x) >= tiles;
  Kept kept(segments, is_reversed);
  const SegmentMaps<Shape::kDk> maps = segments.starts_of(is_reversed);
  is_reversed ? carry_columns<Shape, true>(a, transitions, maps, kept, int(blockIdx.x) - tiles)
              : carry_columns<Shape, false>(a, transitions, maps, kept, int(blockIdx.x));
}

/// Segments without what passes from one to the next, which start_maps() allocates.
/// @param bounds of chunks [B, H, N], which the kernel before leaves; null without gates
template <int kDk>
WalkSegments<kDk> walk_segments(const Bf16BackwardArguments& g, const BackwardSegments& cut, const float* bounds) {
  return {.count = cut.count,
          .chunks = cut.chunks,
          .N = ceil_div(g.L, kChunk),
          .bounds = bounds,
          .decays = nullptr,
          .starts = SegmentMaps<kDk>(forward_of(g), cut.count - 1),
          .adjoint_states = nullptr};
}

/// Starts the kernels for what segments start from, if there are several.
/// @param rates decays of a segment: 0, 1, or kDk
/// @param config of the walks' kernel; start its kernel for maps with a LaunchConfig
template <class Shape, class Kept, class Start>
void start_maps(const Bf16BackwardArguments& g, WalkSegments<Shape::kDk>& segments, int rates, LaunchConfig config,
                Start start) {
  if (segments.count == 1) return;
  const int tiles = segments.starts.tiles;
  const std::size_t all = std::size_t(g.B) * std::size_t(g.H) * std::size_t(segments.count - 1);
  if (rates > 0) {
    segments.decays = workspace<float>("delta_rule --backward: decays of segments", all * std::size_t(rates));
  }
  segments.adjoint_states = workspace<float4>("delta_rule --backward: segments from the end",
                                              all * std::size_t(tiles * segments.starts.kStateBytes) / sizeof(float4));
  config.starts_early = true;
  config.grid.x = unsigned(segments.count * (2 * tiles + Shape::kDk / kColumns));
  start(config);
  LaunchConfig carry(dim3(unsigned(2 * tiles), unsigned(g.H), unsigned(g.B)), kCarryThreads,
                     kTransitions * std::size_t(segments.starts.kTransitionBytes));
  carry.starts_early = true;
  const Bf16Arguments a = forward_of(g);
  launch(carry_both_ways_kernel<Shape, Kept>, carry, a, segments.starts.transition_map(a), segments);
  end_part("segments");
}

}  // namespace
}  // namespace tutorial::delta_rule
