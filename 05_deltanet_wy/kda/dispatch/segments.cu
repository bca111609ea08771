/// @file
/// `segments`: the walk of `two_products` over segments that need no past.
///
/// Idea: where few heads leave multiprocessors idle, a sequence is cut into segments, and each is walked by blocks of
/// its own. The gates of KDA are such that little is left of a state after one to three chunks, so a segment's walk
/// starts that much earlier from zeros (chunk/zero_starts.cuh). The kernel of `one_anchor` says how much each chunk
/// leaves of a state. The blocks of the walk find out from that where they start and end. Where a segment's start has
/// to be known, because some channel forgets too little, the block of the segment before it walks on.
///
/// Improves on: `one_anchor` has one block for 64 columns of a head, so a long sequence with few heads takes as long as
/// one block takes for it.
/// Unchanged: both kernels of `one_anchor`, but for the bounds, and for the chunks without outputs before a segment.
///
/// Equation: that of `two_products`. A state of which at most 2^-24 would be left is taken for 0.
/// Shapes: those of `one_anchor`, and bounds [B, H, N, 4] in fp32.
/// Thread mapping: that of `two_products`, for each segment.
/// Synchronization: as there. The walk starts early, and waits for the kernel that prepares.
/// Resources: those of `one_anchor`.
/// Work, bytes: those of `one_anchor`, and of the walk over the chunks before segments, which depend on the gates.
/// Bound by: the memory's bandwidth while it prepares, then the chain of a segment.
/// Requires: what `one_anchor` requires.
/// Weakness: where gates are weak, segments are walked one after the other, as without them. The rows go through
/// memory.
/// Sources: those of `one_anchor` and of chunk/zero_starts.cuh.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "05_deltanet_wy/chunk/decay_columns.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/chunk/zero_starts.cuh"
#include "05_deltanet_wy/kda/chunk_decays.cuh"
#include "05_deltanet_wy/kda/dispatch/segments.hpp"
#include "05_deltanet_wy/kda/update_tiles.cuh"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/walked_heads.cuh"
#include "common/parts.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using namespace delta_rule;  // products of a chunk, and segments

constexpr int kPipelineDepth = 3;               // chunks in shared memory
constexpr int kBlockThreads = 2 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

template <class Shape>
constexpr std::size_t kSharedBytes =
    kPipelineDepth*(UpdateTiles<Shape>::kBytes + Shape::kDk * sizeof(float)) + ValuePanel::kPanelBytes;

/// Grid (tiles of 64 columns of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    segments_kernel(Bf16Arguments a, const __grid_constant__ UpdateTileMaps maps, PreparedUpdates updates,
                    LaunchPlan plan) {
  const BlockPart<Shape> part(extents_of(a), plan.length, int(blockIdx.x));
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns, N = updates.N;
  const std::int64_t first_chunk = std::int64_t(part.head) * N;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full, output_empty;
  __shared__ WalkedChunks walked;
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return UpdateTiles<Shape>(memory + stage * UpdateTiles<Shape>::kBytes); };
  const ValuePanel output{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * UpdateTiles<Shape>::kBytes)};
  const auto decays_of = [&](int stage) {
    return reinterpret_cast<float*>(output.data + ValuePanel::kPanelElements) + stage * Shape::kDk;
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4);
    output_full.init(4);
    output_empty.init(3);
    fence_barrier_init();
  }
  if (has_been_walked(updates.heads, part.head)) return;
  if (threadIdx.x / 32 == 1) {
    const auto* bounds = reinterpret_cast<const float4*>(updates.bounds) + first_chunk;
    const WalkedChunks found = find_walk(part.segment, plan.length / kChunk, N, [&](int n) {
      const float4 parts = load_for_update(bounds + n);
      return parts.x + parts.y + parts.z + parts.w;
    });
    if (lane_index() == 0) walked = found;
  }
  __syncthreads();
  const int first = walked.first * kChunk, begin = walked.begin * kChunk, end = min(walked.end * kChunk, a.L);
  if (end == 0) return;

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      auto ring = Ring<kPipelineDepth>::producer();
      ChunkDecays<Shape::kDk> decays(updates.decays + (first_chunk + walked.first) * a.Dk, walked.end - walked.first,
                                     a.Dk);
      for (int t = first; t < end; t += kChunk) {
        ring.wait(empty);
        if (thread == 0) {
          fence_async_proxy();  // V has been read by ldmatrix
          tiles_of(ring.stage()).load(maps, full[ring.stage()], b, h, t, first_column);
        }
        decays.store(decays_of(ring.stage()));
        __syncwarp();
        if (thread == 0) full[ring.stage()].arrive();
        ring.advance();
      }
    } else {
      auto ring = Ring<1>::consumer();
      const auto pass_on = [&] {
        __syncwarp();
        if (lane_index() == 0) output_empty.arrive();
      };
      for (int t = first; t < end; t += kChunk) {
        ring.wait(&output_full);
        if (t < begin) {
          pass_on();
        } else {
          store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                       output, pass_on);
        }
        ring.advance();
      }
    }
  } else {
    WarpgroupState<Shape::kDk> S = {};
    if (first == 0 && a.initial_state.data) {
      load_group_state<Shape::kDk>(S, a.initial_state.row(b, h, 0) + first_column, a.initial_state.stride_l, a.Dk,
                                   columns);
    }
    auto ring = Ring<kPipelineDepth>::consumer();
    auto next_ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `ring`
    auto output_ring = Ring<1>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_columns();
    // residual = -V of the next chunk.
    const auto load_values = [&] {
      next_ring.wait(full);
      load_signed_values(residual, tiles_of(next_ring.stage()).V, unit, kMinus);
    };
    // residual += K+ S of that chunk, and S decays as that chunk says.
    const auto add_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, tiles_of(next_ring.stage()).K);
      wgmma_commit();
      decay_columns(S, decays_of(next_ring.stage()));
    };
    // O = Q+ S of that chunk.
    const auto start_output = [&] {
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles_of(next_ring.stage()).Q);
      wgmma_commit();
      wgmma_wait<1>(residual);
      next_ring.advance();
    };
    // Starts from the residual of a chunk: updates S, computes its outputs and the residual of the next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const auto tiles = tiles_of(ring.stage());
      round_columns(factor, residual);
      wgmma_fence(S, factor);
      start_state_update<Shape::kDk>(S, factor, tiles.J);
      wgmma_commit();
      start_output_from_values(O, factor, tiles.R);
      wgmma_commit();
      if constexpr (HasNext::value) {
        load_values();
        wgmma_wait<1>(S);
        add_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      __syncwarp();  // all lanes have read V and the decays
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      output_ring.wait(&output_empty);
      put_output(output, O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full.arrive();
      output_ring.advance();
      if constexpr (HasNext::value) start_output();
    };

    load_values();
    add_state_product();
    start_output();
    for (int t = first; t + kChunk < end; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void segments(const Bf16Arguments& a, const LaunchPlan& plan, const WalkedHeads& heads) {
  const PreparedUpdates updates = prepare_with_one_anchor(a, true, heads);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    LaunchConfig config(grid_of<Shape>(extents_of(a), plan.segments), kBlockThreads, kSharedBytes<Shape>);
    config.starts_early = true;
    launch(segments_kernel<Shape>, config, a, update_maps(updates, a), updates, plan);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  end_part("walk");
}

void segments(const Bf16Arguments& a) {
  segments(a, shortest_segments(a));
}

std::int64_t chunks_in_line(const Bf16Arguments& a, const LaunchPlan& plan) {
  constexpr std::int64_t kWarmUp = 2, kSearch = 1;  // what it takes to find the start, in chunks
  const std::int64_t blocks = std::int64_t(a.B) * a.H * ceil_div(a.Dv, kWarpgroupColumns) * plan.segments;
  return ceil_div(blocks, multiprocessor_count()) *
         (plan.length / kChunk + (plan.segments > 1 ? kWarmUp + kSearch : 0));
}

LaunchPlan shortest_segments(const Bf16Arguments& a) {
  LaunchPlan best = make_launch_plan(a.L, kWarpgroupColumns, 1);
  const std::int64_t most = std::min(ceil_div(a.L, kChunk), 2 * multiprocessor_count());
  for (int segments = 2; segments <= most; ++segments) {
    const LaunchPlan plan = make_launch_plan(a.L, kWarpgroupColumns, segments);
    if (chunks_in_line(a, plan) < chunks_in_line(a, best)) best = plan;
  }
  return best;
}

}  // namespace tutorial::kda
