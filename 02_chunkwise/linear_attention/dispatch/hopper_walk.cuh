#pragma once
/// @file
/// The walk that dispatch starts on Hopper: stage 13 for every plan of the launch, with the normaliser where it is
/// asked for, and in either direction, for the gradients. The stage file ../13_queued_products.cu explains the order of products, ../12_balanced_roles.cu the
/// roles, and ../8_sequence_parallel.cu the segments.
///
/// Normaliser: the warpgroups with the scores have time left. While its product runs, such a warpgroup computes Q z and
/// 1^T K by mma (key_sum.cuh). P 1 are sums over the rows of its accumulators. So scale / (scale q_t . z_t + eps) is
/// there together with P, and the state's warps multiply by it what they hand on. The two warpgroups take turns with z:
/// each adds its chunk's keys, and leaves the z of the next chunk to the other.
///
/// direction.cuh says what a direction is.

#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/linear_attention/dispatch/direction.cuh"
#include "02_chunkwise/linear_attention/dispatch/in_segments.cuh"
#include "02_chunkwise/linear_attention/dispatch/key_sum.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;               // chunks in shared memory
constexpr int kDepth = 2;                       // P and O in shared memory
constexpr int kBlock = 4 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them
constexpr int kStatesBlock = kWarpgroup + 32;   // threads of kernel 1: those of the state, and a warp that loads
constexpr unsigned kZIsThere = 1;               // named barrier; the next two are those of warpgroups 0 and 1

/// While one warpgroup reads the z of its chunk, the other may go on by two chunks.
template <class Shape>
using KeySum = SharedKeySum<Shape, 4>;

template <class Shape, bool kNormalized>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes +
                                     2 * kDepth* PanelTile<64>::kPanelBytes +
                                     (kNormalized ? KeySum<Shape>::kBytes + kDepth * kChunk * sizeof(float) : 0);

/// What the blocks of kernel 1 do: the sum of k_t^T v_t of a segment. From the end to the beginning, so that the
/// second-level cache has what the walk reads first.
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param normalizers [B, H, segments - 1, Dk]: the segments' sums of k_t; unused unless kNormalized
template <class Shape, bool kNormalized, class Direction>
__device__ __forceinline__ void compute_segment_state(const Bf16Arguments& a, const ChunkMaps& maps,
                                                      const LaunchPlan& plan, const BlockPart<Shape>& part,
                                                      const Direction& direction, float* states, float* normalizers) {
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return StateTiles<Shape>(memory + stage * StateTiles<Shape>::kBytes); };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4);
    fence_barrier_init();
  }
  __syncthreads();

  if (threadIdx.x >= kWarpgroup) {
    if (threadIdx.x > kWarpgroup) return;
    auto ring = Ring<kPipelineDepth>::producer();
    for (int t = part.end - kChunk; t >= part.begin; t -= kChunk) {
      const StateTiles<Shape> tiles = tiles_of(ring.stage());
      Barrier& barrier = full[ring.stage()];
      ring.wait(empty);
      barrier.arrive_expect(StateTiles<Shape>::kBytes);
      load_chunk(tiles, maps, barrier, part.b, part.h, direction.position(t), part.first_column);
      ring.advance();
    }
    return;
  }
  WarpgroupState<Shape::kDk> S;
#pragma unroll
  for (float& element : S) element = 0;
  typename KeySum<Shape>::KeySums keys = {};
  auto ring = Ring<kPipelineDepth>::consumer();
  for (int t = part.begin; t < part.end; t += kChunk) {
    const StateTiles<Shape> tiles = tiles_of(ring.stage());
    ring.wait(full);
    wgmma_fence(S);
    start_state_update<Shape::kDk>(S, tiles.V, tiles.K);
    wgmma_commit();
    if constexpr (kNormalized) KeySum<Shape>::add_keys(keys, tiles.K);
    wgmma_wait<0>(S);
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
  }
  const std::int64_t at = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  store_group_state<Shape::kDk>(states + at * a.Dk * a.Dv + part.first_column, S, a.Dv, a.Dk, part.columns);
  if constexpr (kNormalized) {
    if (part.first_column == 0) KeySum<Shape>::store_keys(normalizers + at * a.Dk, keys, a.Dk);
  }
}

/// The sum of a thread's scores in row wgmma_row(0), in x, and in row wgmma_row(2), in y, over the four lanes that have
/// these rows.
__device__ __forceinline__ float2 row_sums(const WarpgroupScores& scores) {
  float2 sums{0, 0};
#pragma unroll
  for (int i = 0; i < kChunk / 2; i += 4) {
    sums.x += scores[i] + scores[i + 1];
    sums.y += scores[i + 2] + scores[i + 3];
  }
  return {warp_sum<4>(sums.x), warp_sum<4>(sums.y)};
}

/// What the blocks of kernel 3 do: the walk of a segment.
/// @param load_start (S): loads the state that the segment starts from
/// @param store_final (S): called after the last segment
template <class Shape, bool kNormalized, class Direction, class LoadStart, class StoreFinal>
__device__ __forceinline__ void walk_segment(const Bf16Arguments& a, const ChunkMaps& maps, const LaunchPlan& plan,
                                             const Normalizer& normalizer, const BlockPart<Shape>& part, int L,
                                             const Direction& direction, LoadStart load_start, StoreFinal store_final) {
  // Lanes of a warp that arrive when P is there: one, or the eight that have written factors.
  constexpr int kArrivals = kNormalized ? 8 : 1;
  const int b = part.b, h = part.h, begin = part.begin, end = part.end;
  const int first_column = part.first_column, columns = part.columns;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier scores_full[kDepth], scores_empty[kDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };

  auto* factors = reinterpret_cast<float*>(panel(2 * kDepth).data);  // [kDepth, C]
  const KeySum<Shape> z(factors + kDepth * kChunk);

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 + 4);  // the warps with the chunk's scores, and those of the state
    for (Barrier& barrier : scores_full) barrier.init(4 * kArrivals);
    for (Barrier& barrier : scores_empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group < 2) {
    decrease_registers<96>();
    if constexpr (kNormalized) {
      if (group == 0) {
        z.load(start_of_z(normalizer, part, plan, a.Dk), a.Dk, 0);
        wait_at_named_barrier(kZIsThere, kWarpgroup);
      }
    }
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kDepth>::producer();
    for (int t = begin; t < end; t += kChunk) {
      if (const int n = (t - begin) / kChunk; n % 2 == group) {
        const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
        WarpgroupScores scores;
        ring.wait(full);
        wgmma_fence(scores);
        start_scores(scores, tiles.Q, tiles.K);
        wgmma_commit();
        [[maybe_unused]] float from_state[2][4] = {};  // accumulators of Q z: even steps and odd ones
        if constexpr (kNormalized) {
          typename KeySum<Shape>::KeySums keys = {};
          z.add_keys(keys, tiles.K);
          if (n > 0) wait_at_named_barrier(kZIsThere + 1 + group, 2 * kWarpgroup);
          z.advance(n, keys);
          if (t + kChunk < end) arrive_at_named_barrier(kZIsThere + 1 + (1 - group), 2 * kWarpgroup);
#pragma unroll
          for (int i = 0; i < Shape::kDk / 16; ++i) z.add_product(from_state[i % 2], n, tiles.Q, i);
          if (t + kChunk >= L && normalizer.final_z && part.first_column == 0) {
            z.store(normalizer.final_z + std::int64_t(part.head) * a.Dk, a.Dk, n + 1);
          }
        }
        wgmma_wait<0>(scores);
        if (lane_index() == 0) empty[ring.stage()].arrive();
        score_ring.wait(scores_empty);
        store_masked_scores(panel(score_ring.stage()), scores, direction.is_reversed());
        if constexpr (kNormalized) {
          const float2 in_chunk = row_sums(scores);
          const float first = in_chunk.x + (from_state[0][0] + from_state[1][0]);
          const float second = in_chunk.y + (from_state[0][2] + from_state[1][2]);
          if (lane_index() % 4 == 0) {
            float* to = factors + score_ring.stage() * kChunk;
            to[wgmma_row(0)] = __fdividef(a.scale, a.scale * first + normalizer.eps);
            to[wgmma_row(2)] = __fdividef(a.scale, a.scale * second + normalizer.eps);
          }
        }
        fence_async_proxy();
        __syncwarp();
        if (int(lane_index()) % (32 / kArrivals) == 0) scores_full[score_ring.stage()].arrive();
      }
      ring.advance();
      score_ring.advance();
    }
  } else if (group == 2) {
    decrease_registers<72>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = begin; t < end; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
        load_chunk(tiles_of(ring.stage()), maps, full[ring.stage()], b, h, direction.position(t), first_column);
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
  } else {
    increase_registers<240>();
    WarpgroupState<Shape::kDk> S;
    load_start(S);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto score_ring = Ring<kDepth>::consumer();
    auto output_ring = Ring<kDepth>::producer();

    WarpgroupOutput O;
    const auto start_update = [&] {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      ring.wait(full);
      ring.advance();
      wgmma_fence(S);
      start_state_update<Shape::kDk>(S, tiles.V, tiles.K);
      wgmma_commit();
    };
    const auto start_outputs = [&](RoundedState<Shape::kDk>& s) {
      const ChunkTiles<Shape> tiles = tiles_of(read.stage());
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      start_output_from_scores(O, tiles.V, panel(score_ring.stage()));
      wgmma_commit();
    };
    // Releases what the outputs were made of, and hands them on.
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
    // The outputs of a chunk from s, and the state of the next chunk.
    const auto walk = [&](RoundedState<Shape::kDk>& s, RoundedState<Shape::kDk>& s_after) {
      start_outputs(s);
      round_state<Shape::kDk>(s_after, S);
      start_update();
      wgmma_wait<1>(O, s);
      finish_outputs();
      score_ring.wait(scores_full);
      wgmma_wait<0>(S);
    };

    // The outputs of the last chunk.
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
