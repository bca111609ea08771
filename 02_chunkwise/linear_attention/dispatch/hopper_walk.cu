/// @file
/// The walk that dispatch starts on Hopper: stage 12, ../12_queued_products.cu, for every plan of the launch, with the
/// normaliser where it is asked for. That file explains the roles and the order of products, ../8_sequence_parallel.cu the
/// segments.
///
/// Normaliser: the warpgroup with the scores has time left. While its product runs, it computes Q z and 1^T K by mma
/// (key_sum.cuh). P 1 are sums over the rows of its accumulators. So scale / (scale q_t . z_t + eps) is there together with
/// P, and state warpgroups multiply by it what they store.
/// Roles: warpgroup 0 computes scores, because key_sum.cuh wants threads 0 to 127; warpgroup 1 loads; the others have states.

#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/linear_attention/dispatch/in_segments.cuh"
#include "02_chunkwise/linear_attention/dispatch/key_sum.cuh"
#include "02_chunkwise/linear_attention/dispatch/walk.hpp"
#include "common/device/launch.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 4;  // chunks in shared memory
constexpr int kScoreDepth = 2;     // P in shared memory

template <class Shape>
constexpr int kStateGroups = Shape::kDv / kWarpgroupColumns;
template <class Shape>
constexpr int kBlock = (2 + kStateGroups<Shape>)*kWarpgroup;  // threads
template <class Shape, bool kNormalized>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes +
                                     (kScoreDepth + kStateGroups<Shape>)*PanelTile<64>::kPanelBytes +
                                     (kNormalized ? SharedKeySum<Shape>::kBytes + kScoreDepth * kChunk * sizeof(float)
                                                  : 0);

// Of the kernel in front.
template <class Shape>
constexpr int kStatesDepth = Shape::kDv == 64 ? 4 : 3;  // chunks in shared memory
template <class Shape>
constexpr int kStatesBlock =
    kStateGroups<Shape>* kWarpgroup + 32;  // threads: those of the states, and a warp that loads

/// Kernel 1: the sum of k_t^T v_t of every segment but the last, whose chunks are all whole. From the end to the beginning,
/// so that the second-level cache has what the walk reads first. Grid (tiles of Dv of these segments, H, B).
/// @param states [B, H, segments - 1, Dk, Dv]
/// @param normalizers [B, H, segments - 1, Dk]: the segments' sums of k_t; unused unless kNormalized
template <class Shape, bool kNormalized>
__global__ void __launch_bounds__(kStatesBlock<Shape>, kNormalized && Shape::kDv > 64 ? 1 : 2)
    hopper_states_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan, float* states,
                         float* normalizers) {
  constexpr int kDepth = kStatesDepth<Shape>;
  const BlockPart<Shape> part(extents_of(a), plan.length);
  __shared__ Barrier full[kDepth], empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return StateTiles<Shape>(memory + stage * StateTiles<Shape>::kBytes); };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 * kStateGroups<Shape>);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == kStateGroups<Shape>) {
    if (threadIdx.x % kWarpgroup > 0) return;
    auto ring = Ring<kDepth>::producer();
    for (int t = part.end - kChunk; t >= part.begin; t -= kChunk) {
      const StateTiles<Shape> tiles = tiles_of(ring.stage());
      Barrier& barrier = full[ring.stage()];
      ring.wait(empty);
      barrier.arrive_expect(StateTiles<Shape>::kBytes);
      load_panels(tiles.K, maps.k, barrier, {.position = t, .head = part.h, .batch = part.b});
      load_panels(tiles.V, maps.v, barrier,
                  {.column = part.first_column, .position = t, .head = part.h, .batch = part.b});
      ring.advance();
    }
    return;
  }
  WarpgroupState<Shape::kDk> S;
#pragma unroll
  for (float& element : S) element = 0;
  typename SharedKeySum<Shape>::KeySums keys = {};
  auto ring = Ring<kDepth>::consumer();
  for (int t = part.begin; t < part.end; t += kChunk) {
    const StateTiles<Shape> tiles = tiles_of(ring.stage());
    ring.wait(full);
    wgmma_fence(S);
    start_state_update<Shape::kDk>(S, PanelTile<64>{tiles.V.data + group * PanelTile<64>::kPanelElements}, tiles.K);
    wgmma_commit();
    if constexpr (kNormalized) {
      if (group == 0) SharedKeySum<Shape>::add_keys(keys, tiles.K);
    }
    wgmma_wait<0>(S);
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
  }
  const std::int64_t at = std::int64_t(part.head) * (plan.segments - 1) + part.segment;
  const int column = group * kWarpgroupColumns;
  store_group_state<Shape::kDk>(states + at * a.Dk * a.Dv + part.first_column + column, S, a.Dv, a.Dk,
                                part.columns - column);
  if constexpr (kNormalized) {
    if (part.first_column == 0 && group == 0) SharedKeySum<Shape>::store_keys(normalizers + at * a.Dk, keys, a.Dk);
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

/// Kernel 3. Grid (tiles of Dv of all segments, H, B).
template <class Shape, bool kNormalized>
__global__ void __launch_bounds__(kBlock<Shape>, 1)
    hopper_walk_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps, LaunchPlan plan,
                       Normalizer normalizer) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, begin = part.begin, end = part.end;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], scores_full[kScoreDepth], scores_empty[kScoreDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return ChunkTiles<Shape>(memory + stage * ChunkTiles<Shape>::kBytes); };
  const auto panel = [&](int number) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes +
                                                          number * int(PanelTile<64>::kPanelBytes))};
  };
  auto* factors = reinterpret_cast<float*>(panel(kScoreDepth + kStateGroups<Shape>).data);  // [kScoreDepth, C]
  const SharedKeySum<Shape> z(factors + kScoreDepth * kChunk);

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4 + 4 * kStateGroups<Shape>);
    for (Barrier& barrier : scores_full) barrier.init(4);
    for (Barrier& barrier : scores_empty) barrier.init(4 * kStateGroups<Shape>);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 1) {
    decrease_registers<24>();
    if (threadIdx.x % kWarpgroup > 0) return;
    auto ring = Ring<kPipelineDepth>::producer();
    for (int t = begin; t < end; t += kChunk) {
      ring.wait(empty);
      full[ring.stage()].arrive_expect(ChunkTiles<Shape>::kBytes);
      load_chunk(tiles_of(ring.stage()), maps, full[ring.stage()], b, h, t, part.first_column);
      ring.advance();
    }
  } else if (group == 0) {
    if constexpr (kStateGroups<Shape> == 1) decrease_registers<152>();
    if constexpr (kStateGroups<Shape> == 2) decrease_registers<104>();
    if constexpr (kNormalized) z.load(start_of_z(normalizer, part, plan, a.Dk), a.Dk, begin / kChunk);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto score_ring = Ring<kScoreDepth>::producer();
    for (int t = begin; t < end; t += kChunk) {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      WarpgroupScores scores;
      ring.wait(full);
      wgmma_fence(scores);
      start_scores(scores, tiles.Q, tiles.K);
      wgmma_commit();
      [[maybe_unused]] float from_state[2][4] = {};  // accumulators of Q z: even steps and odd ones
      if constexpr (kNormalized) {
        typename SharedKeySum<Shape>::KeySums keys = {};
        wait_at_named_barrier(1, kWarpgroup);  // z is there
#pragma unroll
        for (int i = 0; i < Shape::kDk / 16; ++i) {
          z.add_product(from_state[i % 2], t / kChunk, tiles.Q, i);
          z.add_keys(keys, tiles.K, i);
        }
        z.advance(t / kChunk, keys);
      }
      wgmma_wait<0>(scores);
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      score_ring.wait(scores_empty);
      store_masked_scores(panel(score_ring.stage()), scores);
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
      if (lane_index() == 0) scores_full[score_ring.stage()].arrive();
      score_ring.advance();
    }
    if constexpr (kNormalized) {
      if (end == a.L && normalizer.final_z && part.first_column == 0) {
        z.store(normalizer.final_z + std::int64_t(part.head) * a.Dk, a.Dk, (end - 1) / kChunk + 1);
      }
    }
  } else {
    if constexpr (kStateGroups<Shape> == 1) increase_registers<240>();
    if constexpr (kStateGroups<Shape> == 2) increase_registers<192>();
    const int my_group = group - 2, my_column = part.first_column + my_group * kWarpgroupColumns;
    const int columns = min(kWarpgroupColumns, a.Dv - my_column);  // may be negative: a tile beyond the last column
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) : nullptr;
    std::int64_t stride_row = a.initial_state.stride_l;
    if (part.segment > 0) {
      start = plan.starts + (std::int64_t(part.head) * (plan.segments - 1) + part.segment - 1) * a.Dk * a.Dv;
      stride_row = a.Dv;
    }
    load_group_state<Shape::kDk>(S, start ? start + my_column : nullptr, stride_row, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto score_ring = Ring<kScoreDepth>::consumer();
    const auto V = [&](const ChunkTiles<Shape>& tiles) {
      return PanelTile<64>{tiles.V.data + my_group * PanelTile<64>::kPanelElements};
    };
    const PanelTile<64> output = panel(kScoreDepth + my_group);

    WarpgroupOutput O;
    const auto start_update = [&] {
      const ChunkTiles<Shape> tiles = tiles_of(ring.stage());
      ring.wait(full);
      ring.advance();
      wgmma_fence(S);
      start_state_update<Shape::kDk>(S, V(tiles), tiles.K);
      wgmma_commit();
    };
    const auto start_outputs = [&](RoundedState<Shape::kDk>& s) {
      const ChunkTiles<Shape> tiles = tiles_of(read.stage());
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      start_output_from_scores(O, V(tiles), panel(score_ring.stage()));
      wgmma_commit();
    };
    const auto finish_outputs = [&](int t) {
      if (lane_index() == 0) empty[read.stage()].arrive();
      read.advance();
      if constexpr (kNormalized) {
        const float* row_factors = factors + score_ring.stage() * kChunk;
        put_output(output, O, [=](int row) { return *reinterpret_cast<const float2*>(row_factors + row); });
        __syncwarp();
      } else {
        put_output(output, O, a.scale);
      }
      if (lane_index() == 0) scores_empty[score_ring.stage()].arrive();
      score_ring.advance();
      store_warp_columns<PanelShape<Shape::kDk, 64>>(a.o.row(b, h, t) + my_column, a.o.stride_l, end - t, columns,
                                                     output, warp_in_group());
    };
    const auto walk = [&](int t, RoundedState<Shape::kDk>& s, RoundedState<Shape::kDk>& s_after) {
      start_outputs(s);
      round_state<Shape::kDk>(s_after, S);
      start_update();
      wgmma_wait<1>(O, s);
      finish_outputs(t);
      score_ring.wait(scores_full);
      wgmma_wait<0>(S);
    };

    RoundedState<Shape::kDk> even, odd;
    round_state<Shape::kDk>(even, S);
    start_update();
    score_ring.wait(scores_full);
    wgmma_wait<0>(S);
    int t = begin;
    for (; t + 2 * kChunk < end; t += 2 * kChunk) {
      walk(t, even, odd);
      walk(t + kChunk, odd, even);
    }
    if (t + kChunk < end) {
      walk(t, even, odd);
      t += kChunk;
      start_outputs(odd);
      wgmma_wait<0>(O, odd);
    } else {
      start_outputs(even);
      wgmma_wait<0>(O, even);
    }
    finish_outputs(t);
    if (end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + my_column, S, a.final_state.stride_l, a.Dk, columns);
    }
  }
}

template <class Shape, bool kNormalized>
void launch_walk(const Bf16Arguments& a, const LaunchPlan& plan, const Normalizer& normalizer) {
  const Extents extents = extents_of(a);
  const ChunkMaps maps = chunk_maps(a);
  in_segments<kNormalized>(
      a, plan, normalizer,
      [&](int count, float* states, float* sums_of_k) {
        launch(hopper_states_kernel<Shape, kNormalized>,
               {grid_of<Shape>(extents, count), kStatesBlock<Shape>, kStatesDepth<Shape> * StateTiles<Shape>::kBytes},
               a, maps, plan, states, sums_of_k);
      },
      [&](const LaunchPlan& started, const Normalizer& z) {
        launch(hopper_walk_kernel<Shape, kNormalized>,
               {grid_of<Shape>(extents, plan.segments), kBlock<Shape>, kSharedBytes<Shape, kNormalized>}, a, maps,
               started, z);
      });
}

}  // namespace

void hopper_walk(const Bf16Arguments& a, const LaunchPlan& plan, const Normalizer* normalizer) {
  select_shape_up_to_128<PanelShape>(a.Dk, plan.columns, [&]<class Shape>(Shape) {
    normalizer ? launch_walk<Shape, true>(a, plan, *normalizer) : launch_walk<Shape, false>(a, plan, {});
  });
}

}  // namespace tutorial::linear_attention
