/// @file
/// `longer_chunks`: the last kernel's chunks have 128 positions, so that half as many states go through
/// memory.
///
/// Idea: C = 64 is what the inverse allows, and the inverse is in v_new and dV. Given these two, the gradients are
/// those of a linear attention, for which a chunk may have any length: dQ = scale dO S^T + Y K holds for chunks of 128
/// positions, too, with S the state before the first of them and a triangle of scores twice as wide. So the walks store
/// S before every second chunk and dS after every second one, and the last kernel takes two chunks at a time. It has
/// more products, of scores between the two chunks, and the memory less to carry.
///
/// A block keeps one place in shared memory for each of the seven tiles, and goes from one pair of chunks to another. A
/// place is filled again as soon as the last product that reads it is done:
///
///     products              dO S^T   Y K   dV S^T | Y^T Q | Z K   Z^T K | v_new dS^T
///     tiles read no more                        S | dO  Q |       dV  K |  v_new  dS
///
/// dQ leaves through the place of S, dK through that of dS. Scores stay in registers: a warpgroup computes those of its
/// own rows, and those of its own columns again, transposed.
/// Improves on: in `warpgroups` S and dS are 2 KB of the 7.2 KB that a position moves. Its last kernel waits for all
/// tiles of a chunk before it computes, and only another block fills the gap.
/// Unchanged: the walks, but for the states that they leave out.
/// Equation: that of `tensor_core`, with C = 128 in the last kernel. The gradients are divided by scale until they are
/// stored.
/// Shapes: those of `warpgroups`; S and dS for ceil(N / 2) pairs of chunks.
/// Thread mapping: in the last kernel as many blocks as multiprocessors take the pairs of chunks of all heads in turn.
/// One thread of warpgroup 0 loads. Warpgroups 1 and 2 have 64 of the positions each, for dQ and for dK.
/// Synchronization: a pair of barriers for each tile. Both warpgroups wait for each other before dQ takes the place of
/// S, and before dK takes that of dS.
/// Resources: 224 KB of shared memory at Dk = Dv = 128, one block per multiprocessor.
/// Work: that of `warpgroups`, and per position 256 (Dk + Dv) operations for scores between the two chunks and 256 Dv
/// for scores that are computed twice. In
/// marked chunks (chunk/alike_keys.cuh) also another Y K, and the products with what rounding leaves out of v_new, P, X.
/// Bytes: per position at Dk = Dv = 128, 896 in prepare_tiles(), 1280 and 1664 in the walks, if the tiles of Dv share
/// what they read, and 2304 in the last kernel: 6.1 KB.
/// Bound by: as `warpgroups`.
/// Requires: as `warpgroups`.
/// Weakness: as `warpgroups`.
/// Sources: as `warpgroups`.

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

#include "05_deltanet_wy/chunk/alike_keys.cuh"
#include "05_deltanet_wy/chunk/prepare.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/gradient_pairs.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segmented_walks.cuh"
#include "05_deltanet_wy/delta_rule_backward/dispatch/segments.hpp"
#include "05_deltanet_wy/delta_rule_backward/warpgroup_walks.cuh"
#include "common/ceil_div.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
#include "common/device/hide_from_compiler.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/parts.hpp"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

/// Which scores within a chunk count, by row and column.
enum class Mask { kAll, kLower, kStrictlyLower, kUpper, kStrictlyUpper };

/// y = factor scores, rounded, and zeros where the mask says so.
template <Mask kMask>
__device__ __forceinline__ void round_scores(WarpgroupFragments& y, WarpgroupScores& scores, float factor) {
#pragma unroll
  for (int i = 0; i < kChunk / 2; ++i) {
    const int row = wgmma_row(i), column = wgmma_column(i);
    const bool counts = kMask == Mask::kAll || (kMask == Mask::kLower && column <= row) ||
                        (kMask == Mask::kStrictlyLower && column < row) || (kMask == Mask::kUpper && column >= row) ||
                        (kMask == Mask::kStrictlyUpper && column > row);
    scores[i] = counts ? factor * scores[i] : 0;
  }
  round_columns(y, scores);
}

/// dQ += (what rounding leaves out of Y) K + (dO E^T . M) K, where E is what rounding leaves out of v_new.
/// @param is_own whether the keys are those of the queries' chunk
template <int kDk, int kDv, class Tiles>
__device__ __forceinline__ void add_errors_of_scores(float (&dQ)[kDk / 2], const Tiles& tiles, int query_row,
                                                     int key_row, bool is_own) {
  WarpgroupScores scores;
  WarpgroupFragments y;
#pragma unroll 1
  for (const bool of_values : {false, true}) {
    wgmma_fence(scores);
    start_scores_of_rows<kDv>(scores, tiles().dO, query_row, of_values ? tiles().V_errors : tiles().V, key_row);
    wgmma_commit();
    wgmma_wait<0>(scores);
    if (!of_values) keep_errors(scores);
    is_own ? round_scores<Mask::kLower>(y, scores, 1) : round_scores<Mask::kAll>(y, scores, 1);
    wgmma_fence(dQ, y);
    start_product_with_rows<kDk>(dQ, y, tiles().K, key_row);
    wgmma_commit();
    wgmma_wait<0>(dQ);
  }
}

/// dQ, dK and dbeta of one chunk of each pair, by a warpgroup. @tparam kGroup the chunk, 0 or 1
template <int kDk, int kDv, int kGroup>
__device__ __forceinline__ void compute_gradients(const Bf16BackwardArguments& g, const GradientMaps& maps,
                                                  __nv_bfloat16* memory, GradientBarriers& barriers,
                                                  const Pairs& pairs) {
  constexpr int kRow = kGroup * kChunk;
  const float minus = -1 / g.scale;
  // The compiler would keep the places of all factors in registers from product to product.
  const auto tiles = [&] { return GradientTiles<kDk, kDv>(memory + hide_from_compiler(0)); };
  auto ring = Ring<1>::consumer();  // all places are in the same phase, but kDS,
  auto ring_of_dS = ring;           // which errors of v_new take first, where there are any
  const auto wait = [&](Place place) { ring.wait(barriers.full + place); };
  const auto release = [&](Place place) {
    if (lane_index() == 0) barriers.empty[place].arrive();
  };
  const auto release_stored = [&](Place place) {  // after the copy that store_gradient() has started
    if (threadIdx.x % kWarpgroup == 0) wait_stores_read<0>();
    release(place);
  };
  for (int number = int(blockIdx.x); number < pairs.all; number += int(gridDim.x)) {
    const Pair pair = pairs[number];
    float dQ[kDk / 2], dK[kDk / 2];  // divided by scale
    WarpgroupScores scores;
    WarpgroupFragments y;

    wait(kS);
    wait(kDO);
    wgmma_fence(dQ);
    start_product_with_state<kDk, kDv>(dQ, k_along_rows(tiles().dO).along_mn(kRow), tiles().S, false);
    wgmma_commit();
    wait(kV);
    wait(kK);
#pragma unroll
    for (int other = 0; other <= kGroup; ++other) {  // Y K
      wgmma_fence(scores);
      start_scores_of_rows<kDv>(scores, tiles().dO, kRow, tiles().V, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(scores, dQ);
      other == kGroup ? round_scores<Mask::kLower>(y, scores, 1) : round_scores<Mask::kAll>(y, scores, 1);
      wgmma_fence(dQ, y);
      start_product_with_rows<kDk>(dQ, y, tiles().K, other * kChunk);
      wgmma_commit();
    }
    wait(kDV);
    wgmma_fence(dK);
    start_product_with_state<kDk, kDv>(dK, k_along_rows(tiles().dV).along_mn(kRow), tiles().S, false);
    wgmma_commit();
    wgmma_wait<0>(dQ, dK);
    if (barriers.alike[0] || barriers.alike[1]) {
      ring_of_dS.wait(barriers.full + kDS);
      for (int other = 0; other <= kGroup; ++other) {
        if (barriers.alike[other]) add_errors_of_scores<kDk, kDv>(dQ, tiles, kRow, other * kChunk, other == kGroup);
      }
      release(kDS);
      ring_of_dS.advance();
    }
    end_reads_of(kS, kGroup);
    float betas[2];
    load_betas(betas, g, pair.b, pair.h, pair.first + kRow);
#pragma unroll
    for (int i = 0; i < kDk / 2; ++i) dK[i] *= minus;
    wait_for_reads_of(kS, kGroup);
    store_gradient<kDk>(tiles().dQ, dQ, g.scale, maps.dq, pair, kGroup);

    wait(kQ);
#pragma unroll
    for (int other = kGroup; other < 2; ++other) {  // Y^T Q
      wgmma_fence(scores);
      start_scores_of_rows<kDv>(scores, tiles().V, kRow, tiles().dO, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(scores, dK);
      other == kGroup ? round_scores<Mask::kUpper>(y, scores, 1) : round_scores<Mask::kAll>(y, scores, 1);
      wgmma_fence(dK, y);
      start_product_with_rows<kDk>(dK, y, tiles().Q, other * kChunk);
      wgmma_commit();
    }
    wgmma_wait<0>(dK);
    release(kDO);
    release(kQ);
    release_stored(kS);

#pragma unroll
    for (int other = 0; other <= kGroup; ++other) {  // -Z K
      wgmma_fence(scores);
      start_scores_of_rows<kDv>(scores, tiles().dV, kRow, tiles().V, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(scores, dK);
      if (other == kGroup) {
        store_beta_gradient(g, pair.b, pair.h, pair.first + kRow, scores, betas);
        round_scores<Mask::kStrictlyLower>(y, scores, minus);
      } else {
        round_scores<Mask::kAll>(y, scores, minus);
      }
      wgmma_fence(dK, y);
      start_product_with_rows<kDk>(dK, y, tiles().K, other * kChunk);
      wgmma_commit();
    }
#pragma unroll
    for (int other = kGroup; other < 2; ++other) {  // -Z^T K
      wgmma_fence(scores);
      start_scores_of_rows<kDv>(scores, tiles().V, kRow, tiles().dV, other * kChunk);
      wgmma_commit();
      wgmma_wait<0>(scores, dK);
      other == kGroup ? round_scores<Mask::kStrictlyUpper>(y, scores, minus)
                      : round_scores<Mask::kAll>(y, scores, minus);
      wgmma_fence(dK, y);
      start_product_with_rows<kDk>(dK, y, tiles().K, other * kChunk);
      wgmma_commit();
    }
    wgmma_wait<0>(dK);
    release(kDV);
    release(kK);

    ring_of_dS.wait(barriers.full + kDS);
    wgmma_fence(dK);
    start_product_with_state<kDk, kDv>(dK, k_along_rows(tiles().V).along_mn(kRow), tiles().dS, true);
    wgmma_commit();
    wgmma_wait<0>(dK);
    end_reads_of(kDS, kGroup);
    release(kV);
    wait_for_reads_of(kDS, kGroup);
    store_gradient<kDk>(tiles().dK, dK, g.scale, maps.dk, pair, kGroup);
    release_stored(kDS);
    ring.advance();
    ring_of_dS.advance();
  }
}

/// Grid (any number of blocks). Starts early.
template <int kDk, int kDv>
__global__ void __launch_bounds__(kBlockThreads, 1)
    gradients_kernel(Bf16BackwardArguments g, const __grid_constant__ GradientMaps maps, PreparedTiles prepared,
                     Pairs pairs) {
  using Tiles = GradientTiles<kDk, kDv>;
  __shared__ GradientBarriers barriers;
  const Tiles tiles(dynamic_shared<__nv_bfloat16, kTileAlignment>());
  if (threadIdx.x == 0) {
    for (Barrier& barrier : barriers.full) barrier.init(1);
    for (Barrier& barrier : barriers.empty) barrier.init(2 * 4);
    fence_barrier_init();
  }
  __syncthreads();
  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<40>();
    if (threadIdx.x != 0) return;
    wait_for_previous_kernel();
    auto ring = Ring<1>::producer(), ring_of_dS = ring;
    for (int number = int(blockIdx.x); number < pairs.all; number += int(gridDim.x)) {
      const Pair pair = pairs[number];
      const MarksOfPair marks(prepared, pair, g.H, g.L);
      const auto load = [&]<int kColumns, int kRows>(Place place, const PanelTile<kColumns, kRows>& tile,
                                                     const TensorMap& map, int row) {
        Barrier& full = barriers.full[place];
        (place == kDS ? ring_of_dS : ring).wait(barriers.empty + place);
        if (place == kV) marks.tell(barriers);
        full.arrive_expect(kColumns * kRows * unsigned(sizeof(__nv_bfloat16)));
        load_panels(tile, map, full, {.position = row, .head = pair.h, .batch = pair.b});
      };
      const int state = pair.first / kPair * kDv;
      // In the order in which the places are released, so that no copy waits for a place that others do not need.
      load(kDO, tiles.dO, maps.d_o, pair.first);
      load(kQ, tiles.Q, maps.q, pair.first);
      load(kS, tiles.S, maps.S, state);
      load(kDV, tiles.dV, maps.dv, pair.first);
      load(kK, tiles.K, maps.k, pair.first);
      load(kV, tiles.V, maps.v_new, pair.first);
      if (marks.any()) {
        ring_of_dS.wait(barriers.empty + kDS);
        marks.load_errors<kDv>(tiles.V_errors, maps.v_errors, barriers.full[kDS], pair);
        ring_of_dS.advance();
      }
      load(kDS, tiles.dS, maps.dS, state);
      ring_of_dS.advance();
      ring.advance();
    }
  } else {
    increase_registers<232>();
    group == 1 ? compute_gradients<kDk, kDv, 0>(g, maps, tiles.S.data, barriers, pairs)
               : compute_gradients<kDk, kDv, 1>(g, maps, tiles.S.data, barriers, pairs);
  }
}

/// Starts the last kernel.
void start_gradients_of_pairs(const Bf16BackwardArguments& g, const PreparedTiles& prepared, const Workspace& x) {
  const int count = ceil_div(g.L, kPair), all = g.B * g.H * count;
  select_widths(g, [&]<int kDk, int kDv>() {
    LaunchConfig config(unsigned(std::min(all, multiprocessor_count())), unsigned(kBlockThreads),
                        GradientTiles<kDk, kDv>::kBytes);
    config.starts_early = start_early(g);
    launch(gradients_kernel<kDk, kDv>, config, g, GradientMaps(g, x, kPair, kDv), prepared, Pairs{count, all, g.H});
  });
  end_part("gradients");
}

}  // namespace

void longer_chunks_backward(const Bf16BackwardArguments& g) {
  const PreparedTiles prepared = prepare_tiles(forward_of(g), kLeastBeta);
  end_part("prepare");
  start_gradients_of_pairs(g, prepared, start_walks<2>(g, prepared, "delta_rule --backward: longer_chunks"));
}

void segments_backward(const Bf16BackwardArguments& g) {
  const PreparedTiles prepared = prepare_tiles(forward_of(g), kLeastBeta);
  end_part("prepare");
  const Workspace x = workspace_of(g, "delta_rule --backward: longer_chunks", 2);
  start_segmented_walks<2, false>(g, walk_maps(g, prepared, x), nullptr, nullptr, BackwardSegments::one_wave(g));
  start_gradients_of_pairs(g, prepared, x);
}

}  // namespace tutorial::delta_rule
