#pragma once
/// @file
/// The walk that dispatch starts on Hopper: `queued_products` for every launch plan, with the normaliser if there is
/// one, and in either direction (direction.cuh), for the gradients. The stage file ../14_queued_products.cu explains
/// the order of products, ../13_balanced_roles.cu the roles, and ../9_segments.cu the segments.
///
/// Normaliser: z is one more key of each chunk, so that the product of the scores computes Q z, too (key_rows.cuh). P 1
/// consists of sums over the rows of the accumulators of this product. So scale / (scale q_t . z_t + eps) is ready
/// together with P, and the state's warps multiply the outputs by it. A fifth warpgroup adds up the keys and puts z
/// into the tiles of the next chunks. `full` says that a chunk and its z are there. The threads of this warpgroup need
/// registers, so all other roles have fewer than without the normaliser.

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "02_chunkwise/linear_attention/dispatch/direction.cuh"
#include "02_chunkwise/linear_attention/dispatch/in_segments.cuh"
#include "02_chunkwise/linear_attention/dispatch/key_rows.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/rows_of_sequence.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;               // chunks in shared memory
constexpr int kDepth = 2;                       // P and O in shared memory
constexpr int kStoreThreads = kWarpgroup - 32;  // threads that store

/// Threads of a block: two warpgroups for scores, one for loads and stores, one for the state, and with the normaliser
/// one for the sums of keys.
template <bool kNormalized>
constexpr int kBlock = (kNormalized ? 5 : 4) * kWarpgroup;
/// Threads of a block of kernel 1: a warpgroup for the state, a warp that loads, and with the normaliser a warpgroup
/// for the sums of keys.
template <bool kNormalized>
constexpr int kStatesBlock = (kNormalized ? 2 : 1) * kWarpgroup + 32;

/// Registers per thread of each role. Over all warpgroups they sum up to what the launch allocates: 504 for four
/// warpgroups, 480 for five.
template <bool kNormalized>
struct Registers {
  static constexpr int kScores = kNormalized ? 80 : 96, kLoads = kNormalized ? 64 : 72,
                       kState = kNormalized ? 200 : 240, kKeys = 56;
};

template <class Shape, bool kNormalized>
using Tiles = std::conditional_t<kNormalized, TilesWithZ<Shape>, ChunkTiles<Shape>>;

template <class Shape, bool kNormalized>
constexpr std::size_t kSharedBytes = kPipelineDepth* Tiles<Shape, kNormalized>::kBytes +
                                     2 * kDepth* PanelTile<64>::kPanelBytes +
                                     (kNormalized ? kDepth * kChunk * sizeof(float) : 0);

/// Kernel 1: computes the sum of k_t^T v_t of a segment. It reads the segment from the end to the beginning, so that
/// the second-level cache then holds what the walk reads first.
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param normalizers [B, H, segments - 1, Dk]: the segments' sums of k_t; unused unless kNormalized
template <class Shape, bool kNormalized, class Part, class Direction>
__device__ __forceinline__ void compute_segment_state(const Bf16Arguments& a, const ChunkMaps& maps,
                                                      const LaunchPlan& plan, const Part& part,
                                                      const Direction& direction, float* states, float* normalizers) {
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return StateTiles<Shape>(memory + stage * StateTiles<Shape>::kBytes); };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 + (kNormalized ? KeySums<Shape::kDk>::kWarps : 0));
    fence_barrier_init();
  }
  __syncthreads();

  const std::int64_t at = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  if (threadIdx.x >= kStatesBlock<kNormalized> - 32) {
    if (lane_index() > 0) return;
    auto ring = Ring<kPipelineDepth>::producer();
    for (int t = part.end - kChunk; t >= part.begin; t -= kChunk) {
      const StateTiles<Shape> tiles = tiles_of(ring.stage());
      Barrier& barrier = full[ring.stage()];
      ring.wait(empty);
      if constexpr (kNormalized) fence_async_proxy();  // K has been read by ordinary loads
      barrier.arrive_expect(StateTiles<Shape>::kBytes);
      load_chunk(tiles, maps, barrier, part.b, part.h, direction.position(t), part.first_column);
      ring.advance();
    }
    return;
  }
  if (kNormalized && threadIdx.x >= kWarpgroup) {
    using Keys = KeySums<Shape::kDk>;
    if (warp_in_group() >= Keys::kWarps) return;
    float sum = 0;
    auto ring = Ring<kPipelineDepth>::consumer();
    for (int t = part.begin; t < part.end; t += kChunk) {
      ring.wait(full);
      sum += Keys::of_chunk(tiles_of(ring.stage()).K);
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
    }
    if (part.first_column == 0 && Keys::column() < a.Dk) store_global(normalizers + at * a.Dk + Keys::column(), sum);
    return;
  }
  WarpgroupState<Shape::kDk> S;
#pragma unroll
  for (float& element : S) element = 0;
  auto ring = Ring<kPipelineDepth>::consumer();
  for (int t = part.begin; t < part.end; t += kChunk) {
    const StateTiles<Shape> tiles = tiles_of(ring.stage());
    ring.wait(full);
    wgmma_fence(S);
    start_state_update<Shape::kDk>(S, tiles.V, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(S);
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
  }
  store_group_state<Shape::kDk>(states + at * a.Dk * a.Dv + part.first_column, S, a.Dv, a.Dk, part.columns);
}

/// Adds up the scores of row wgmma_row(0), in x, and of row wgmma_row(2), in y, over the four lanes that have these
/// rows.
template <int kSums>
__device__ __forceinline__ float2 row_sums(const float (&scores)[kSums]) {
  float2 sums{0, 0};
#pragma unroll
  for (int i = 0; i < kChunk / 2; i += 4) {
    sums.x += scores[i] + scores[i + 1];
    sums.y += scores[i + 2] + scores[i + 3];
  }
  return {warp_sum<4>(sums.x), warp_sum<4>(sums.y)};
}

/// Kernel 3: walks a segment.
/// @param load_start (S): loads the state that the segment starts from
/// @param store_final (S): called after the last segment, stores the final state
template <class Shape, bool kNormalized, class Part, class Direction, class LoadStart, class StoreFinal>
__device__ __forceinline__ void walk_segment(const Bf16Arguments& a, const ChunkMaps& maps, const LaunchPlan& plan,
                                             const Normalizer& normalizer, const Part& part, int L,
                                             const Direction& direction, LoadStart load_start, StoreFinal store_final) {
  using Tiles = Tiles<Shape, kNormalized>;
  using Keys = KeySums<Shape::kDk>;
  using Registers = Registers<kNormalized>;
  constexpr int kKeyWarps = kNormalized ? Keys::kWarps : 0;
  const int b = part.b, h = part.h, begin = part.begin, end = part.end;
  const int first_column = part.first_column, columns = part.columns;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier scores_full[kDepth], scores_empty[kDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return Tiles(memory + stage * Tiles::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };

  auto* factors = reinterpret_cast<float*>(panel(2 * kDepth).data);  // [kDepth, C]

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1 + kKeyWarps);  // the loading thread, and the warps that put z there
    // The warps with the chunk's scores, those of the state, and those that add up its keys.
    for (Barrier& barrier : empty) barrier.init(4 + 4 + kKeyWarps);
    for (Barrier& barrier : scores_full) barrier.init(4);
    for (Barrier& barrier : scores_empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group < 2) {
    decrease_registers<Registers::kScores>();
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::producer();
    for (int t = begin; t < end; t += kChunk) {
      if (const int n = (t - begin) / kChunk; n % 2 == group) {
        const Tiles tiles = tiles_of(ring.stage());
        float scores[tiles.K.kPanelElements / 64 / 2];  // one more column if there is z: Q z
        ring.wait(full);
        wgmma_fence(scores);
        start_scores(scores, tiles.Q, tiles.K);
        wgmma_commit();
        wgmma_wait<0>(scores);
        if (lane_index() == 0) empty[ring.stage()].arrive();
        score_ring.wait(scores_empty);
        store_masked_scores(panel(score_ring.stage()), scores, direction.is_reversed());
        if constexpr (kNormalized) {
          const float2 in_chunk = row_sums(scores);
          if (lane_index() % 4 == 0) {  // this lane has columns 64 and 65
            const float first = in_chunk.x + (scores[kChunk / 2] + scores[kChunk / 2 + 1]);
            const float second = in_chunk.y + (scores[kChunk / 2 + 2] + scores[kChunk / 2 + 3]);
            float* to = factors + score_ring.stage() * kChunk;
            to[wgmma_row(0)] = __fdividef(a.scale, a.scale * first + normalizer.eps);
            to[wgmma_row(2)] = __fdividef(a.scale, a.scale * second + normalizer.eps);
          }
        }
        fence_async_proxy();
        __syncwarp();
        if (lane_index() == 0) scores_full[score_ring.stage()].arrive();
      }
      ring.advance();
      score_ring.advance();
    }
  } else if (group == 2) {
    decrease_registers<Registers::kLoads>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < (Direction::kHasNeighbours ? 32 : 1)) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = begin; t < end; t += kChunk) {
        ring.wait(empty);
        if constexpr (Direction::kHasNeighbours) {
          load_rows_of_sequence(tiles_of(ring.stage()), maps, full[ring.stage()], *direction.arrived, end - t, h, t,
                                first_column);
        } else {
          if constexpr (kNormalized) fence_async_proxy();  // K has been read by ordinary loads
          full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
          load_chunk(tiles_of(ring.stage()), maps, full[ring.stage()], b, h, direction.position(t), first_column);
        }
        ring.advance();
      }
    } else if (thread >= 32) {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = begin; t < end; t += kChunk) {
        output_ring.wait(output_full);
        const int position = direction.position(t);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, position) + first_column, a.o.stride_l,
                                     direction.rows(t, end, a.L), columns, panel(kDepth + output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else if (kNormalized && group == 4) {
    decrease_registers<Registers::kKeys>();
    if (warp_in_group() >= Keys::kWarps) return;
    const int d = Keys::column();
    const float* start = start_of_z(normalizer, part, plan, a.Dk);
    float z = start && d < a.Dk ? load_global(start + d) : 0;
    auto free = Ring<kPipelineDepth>::producer();
    auto ring = Ring<kPipelineDepth>::consumer();
    for (int t = begin; t < end; t += kChunk) {
      const Tiles tiles = tiles_of(ring.stage());
      free.wait(empty);
      if constexpr (kNormalized) Keys::put(tiles.K, z);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) full[ring.stage()].arrive();
      ring.wait(full);
      z += Keys::of_chunk(tiles.K);
      if (lane_index() == 0) empty[ring.stage()].arrive();
      free.advance();
      ring.advance();
    }
    if (end == L && normalizer.final_z && first_column == 0 && d < a.Dk) {
      store_global(normalizer.final_z + std::int64_t(part.head) * a.Dk + d, z);
    }
  } else {
    increase_registers<Registers::kState>();
    WarpgroupState<Shape::kDk> S;
    load_start(S);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto score_ring = Ring<kDepth>::consumer();
    auto output_ring = Ring<kDepth>::producer();

    WarpgroupOutput O;
    const auto start_update = [&] {
      const Tiles tiles = tiles_of(ring.stage());
      ring.wait(full);
      ring.advance();
      wgmma_fence(S);
      start_state_update<Shape::kDk>(S, tiles.V, tiles.K);
      wgmma_commit();
    };
    const auto start_outputs = [&](RoundedState<Shape::kDk>& s) {
      const Tiles tiles = tiles_of(read.stage());
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      start_output_from_scores(O, tiles.V, panel(score_ring.stage()));
      wgmma_commit();
    };
    // Releases the tiles that the outputs were computed from, and hands the outputs to the warps that store them.
    const auto finish_outputs = [&] {
      if (lane_index() == 0) empty[read.stage()].arrive();
      read.advance();
      output_ring.wait(output_empty);
      if constexpr (kNormalized) {
        const float* row_factors = factors + score_ring.stage() * kChunk;
        put_output(panel(kDepth + output_ring.stage()), O,
                   [=](int row) { return *reinterpret_cast<const float2*>(row_factors + row); });
      } else {
        put_output(panel(kDepth + output_ring.stage()), O, a.scale);
      }
      __syncwarp();
      if (lane_index() == 0) {
        scores_empty[score_ring.stage()].arrive();
        output_full[output_ring.stage()].arrive();
      }
      score_ring.advance();
      output_ring.advance();
    };
    // Computes the outputs of a chunk from s, and the state after the next chunk.
    const auto walk = [&](RoundedState<Shape::kDk>& s, RoundedState<Shape::kDk>& s_after) {
      start_outputs(s);
      round_state<Shape::kDk>(s_after, S);
      start_update();
      wgmma_wait<1>(O, s);
      finish_outputs();
      score_ring.wait(scores_full);
      wgmma_wait<0>(S);
    };

    // Computes the outputs of the last chunk.
    const auto walk_last = [&](RoundedState<Shape::kDk>& s) {
      start_outputs(s);
      wgmma_wait<0>(O, s);
      finish_outputs();
    };

    RoundedState<Shape::kDk> even, odd;
    round_state<Shape::kDk>(even, S);
    start_update();
    score_ring.wait(scores_full);
    wgmma_wait<0>(S);
    int t = begin;
    for (; t + 2 * kChunk < end; t += 2 * kChunk) {
      walk(even, odd);
      walk(odd, even);
    }
    if (t + kChunk < end) {
      walk(even, odd);
      walk_last(odd);
    } else {
      walk_last(even);
    }
    if (end == L && a.final_state.data) store_final(S);
  }
}

}  // namespace
}  // namespace tutorial::linear_attention
