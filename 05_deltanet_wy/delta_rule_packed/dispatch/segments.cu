/// @file
/// `segments` of delta_rule on packed sequences: long ones are cut.
///
/// Idea: as in stage 13, a walk without outputs tells what each segment does to a state, and a second kernel goes from
/// segment to segment. The GPU makes the list of segments, so all kernels start with a block for each entry that there
/// may be, and a block whose entry has no segment ends. Only segments that another one follows need a map. These are
/// whole chunks, so no map meets a border. The walk with outputs is that of `one_block`, which does, and which computes T
/// once more.
///
///     sequences       | 0     |1|2                         |
///     segments        | a     |b|c       |d       |e       |       list: c, d, then e, a, b, the longest first
///     maps                       H_c  ->  Psi_d, H_d
///     walks at once     a      b c        d        e                from the states after c and d
///
/// Improves on: in `one_block` a block walks a sequence to its end, while others have none left.
/// Unchanged: the maps, the products from segment to segment, the walk.
/// Thread mapping, resources: those of stage 13 for the maps, with one block per 128 columns of [V | -K] of a segment, and
/// those of `one_block` for the walk.
/// Work: that of `one_block`; where sequences are cut, (4 Dk + 192) (Dk + Dv) operations per position for the maps.
/// Weakness: as in stage 13, twice the operations for sequences that are cut. With enough heads `one_block` is faster.

#include <cuda_runtime.h>

#include <cstdint>

#include "05_deltanet_wy/chunk/one_block_chains.cuh"
#include "05_deltanet_wy/chunk/packed_heads.cuh"
#include "05_deltanet_wy/chunk/prepare_inverses.hpp"
#include "05_deltanet_wy/chunk/segment_maps.cuh"
#include "05_deltanet_wy/chunk/walk_for_map.cuh"
#include "05_deltanet_wy/delta_rule/dispatch/no_decays.cuh"
#include "05_deltanet_wy/delta_rule_packed/dispatch/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/parts.hpp"
#include "common/tile/packed_segments.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

/// The maps of the list's first entries. Grid of SegmentMaps::config().
/// @param inverses those of prepare_inverses() with the plan
template <class Shape>
__global__ void __launch_bounds__(kMapThreads, 1)
    packed_maps_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                       const __grid_constant__ TensorMap inverses, PackedPlan plan, SegmentMaps<Shape::kDk> out) {
  const int chunks = plan.length / kChunk, entry = int(blockIdx.x) / out.blocks();
  let_next_kernel_start();
  const int4 segment = load_global(plan.segments + entry);
  if (segment.x < 0) return;
  if (a.initial_state.data) a.initial_state.data += segment.x * a.initial_state.stride_b;
  walk_for_map<Shape>(a, maps, inverses, out, {entry, segment.w < 0, chunks, segment.y, entry * chunks});
}

/// Those of a sequence among the list's entries.
struct SomeSegments {
  int first_, end_;

  __device__ __forceinline__ int first() const { return first_; }
  __device__ __forceinline__ int end(int) const { return end_; }
};

/// From segment to segment, in the block of a sequence's first one. It waits for the maps even if there is no second one:
/// the walk needs them. Grid (tiles of 64 columns of Dv of each entry, H).
template <class Shape>
__global__ void __launch_bounds__(kCarryThreads, 1)
    carry_packed_kernel(Bf16Arguments a, const __grid_constant__ TensorMap transitions, PackedPlan plan,
                        SegmentMaps<Shape::kDk> maps) {
  const int first = int(blockIdx.x) / maps.tiles, tile = int(blockIdx.x) % maps.tiles;
  const int4 segment = load_global(plan.segments + first);
  if (segment.x < 0 || segment.w >= 0) return;
  int end = first + 1;
  while (end < plan.states && load_global(plan.segments + end).w == end - 1) ++end;
  WithoutGates kept;
  carry_columns<Shape, false>(a, transitions, maps, kept, tile, SomeSegments{first, end});
}

/// Segments, each from the state after the one before it. Grid (tiles of Dv, H, the list's entries).
template <int kDk>
class CarriedHeads : public SequenceHeads {
 public:
  CarriedHeads(const PackedPlan& plan, const SegmentMaps<kDk>& maps) : plan_(plan), maps_(maps) {}

  __device__ __forceinline__ bool begin(Bf16Arguments& a, int columns) {
    const int entry = int(blockIdx.z);
    const int4 segment = load_global(plan_.segments + entry);
    if (segment.x < 0) return false;
    start_ = segment.w;
    begin_sequence(a, segment.x, segment.y, segment.z);
    if (entry < plan_.states) a.final_state.data = nullptr;  // the sequence goes on
    if (a.L == 0) hand_state_on(a, 0, head(), int(blockIdx.x) * columns, columns);
    return a.L > 0;
  }

  template <int>
  __device__ __forceinline__ void load_start(WarpgroupState<kDk>& S, const Bf16Arguments& a, int first_column,
                                             int columns) const {
    if (start_ < 0) return load_initial_state<kDk>(S, a, 0, head(), first_column, columns);
    if (columns > 0) maps_.load_start(S, a, {0, head(), start_ + 1, first_column / kWarpgroupColumns});
  }

 private:
  PackedPlan plan_;
  SegmentMaps<kDk> maps_;
  int start_ = -1;
};

}  // namespace

void segments_packed(const PackedBf16Arguments& p, PackedPlan plan) {
  const Bf16Arguments& a = p.all;
  plan.segments = list_segments(p.cu_seqlens, plan);
  const PreparedInverses x = prepare_inverses(a, plan);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    const SegmentMaps<Shape::kDk> maps(a, plan.states);
    LaunchConfig config = maps.template config<Shape>(a);
    config.starts_early = true;
    launch(packed_maps_kernel<Shape>, config, a, chunk_maps(a), map_of(x, a), plan, maps);
    LaunchConfig carry(dim3(unsigned(plan.states * maps.tiles), unsigned(a.H)), kCarryThreads,
                       kTransitions * std::size_t(maps.kTransitionBytes));
    carry.starts_early = true;
    launch(carry_packed_kernel<Shape>, carry, a, maps.transition_map(a), plan, maps);
    end_part("segments");
    start_one_block_of<Shape, NoDecays>(a, plan.entries(), CarriedHeads<Shape::kDk>(plan, maps));
    end_part("walk");
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
}

std::int64_t segments_packed_memory(const PackedBf16Arguments& p, const PackedPlan& plan) {
  const std::int64_t Dk = p.all.Dk <= 64 ? 64 : 128,
                     columns = ceil_div(p.all.Dv, kWarpgroupColumns) * kWarpgroupColumns;
  const std::int64_t of_map =
      Dk * columns * std::int64_t(sizeof(float)) + Dk * Dk * std::int64_t(sizeof(__nv_bfloat16));
  return plan.entries() * std::int64_t(sizeof(int4)) + plan.states * p.all.H * of_map +
         prepared_inverses_memory(p.all, plan);
}

}  // namespace tutorial::delta_rule
