/// @file
/// Stage 13, `segments`: the sequence is cut into segments, which the GPU walks at the same time.
///
/// Idea: a segment turns the state S that it starts from into Phi S + H, with a matrix Phi [Dk, Dk]. In terms of T, a
/// chunk turns S into S + K^T T (V - K S). For V = -K and S = Psi this is Psi + K^T T (-K - K Psi) = (I - K^T T K) (I +
/// Psi) - I. So a walk that starts from zeros ends with H if its values are V, and with Psi = Phi - I if they are -K.
/// Therefore kernel 1 walks all segments at once, without outputs, over the Dv + Dk columns of [V | -K]. Kernel 2
/// (segment_maps.cuh) goes from segment to segment, S + Psi S + H. Then kernel 3, that of `scores_in_walk`, walks all
/// segments at once.
///
///     segment       0               1                      2                 3
///     kernel 1   S_0, V -> H_0   V -> H_1, -K -> Psi_1   V -> H_2, -K -> Psi_2          at once: reads K, V, T
///     kernel 2               H_0 ------> + Psi_1 H_0 + H_1 ---> + Psi_2 . + H_2         a chain of products
///                   |             |                      |                 |
///     kernel 3    walk          walk                   walk              walk -> S_L    at once
///
/// Why Psi and not Phi: factors are rounded. Phi S would round the whole state. In S + Psi S the first S stays in fp32,
/// and Psi is small if little is written.
///
/// T is read twice now, in kernel 1 and in the walk. So a warpgroup prepares it as in `cluster` (prepare_inverses.cu): with
/// fewer instructions than prepare_tiles_of_T(), and without T's quarter of zeros in memory. The kernels after it start
/// before the one before them has ended (common/device/early_start.cuh): they initialise barriers and load what they can
/// of their first chunk, and only then wait for T or for the starts of segments.
/// Grows out of: 10_scores_in_walk.cu; large step: two kernels more, and T prepared by a warpgroup. Kernels 1 and 2 would
/// be a stage in between, but without kernel 3 they compute no output; T in the old form, a quarter of it zeros, would
/// make a stage that differs from this one in nothing but time
/// Improves on: with few heads, `scores_in_walk` and `three_blocks` leave most multiprocessors idle, however long the
/// sequence is.
/// Unchanged: the products of the chain and its roles; it now walks from `begin` to `end`.
/// Equation:
///
///   H_0 starts from S_0        start of m + 1 = start of m + Psi_m (start of m) + H_m
///
/// Shapes: those of `scores_in_walk`, with T as [B, H, N, 96, 64] bf16; for all segments but the last, H_m [Dk, Dv] fp32,
/// whose place the starts take later, and Psi_m^T [Dk, Dk] bf16 in device memory.
/// Thread mapping: kernel 1 has one block per 128 columns of H or Psi of a segment, with one warpgroup per 64 columns and
/// a thread that loads. While one warpgroup waits for a product, the other computes. Kernel 3 works as in
/// `scores_in_walk`.
/// Resources: kernel 1 has four chunks of K, T and the columns, 192 KB at Dk = 128: one block per multiprocessor. The
/// walk has three chunks of 60 KB at Dk = 128, P among them, and two tiles of outputs, 196 KB.
/// Work: that of `scores_in_walk`; (4 Dk + 192) (Dk + Dv) operations per position for kernel 1; 2 Dk^2 Dv per segment for
/// kernel 2.
/// Bytes: k and beta for T, of which 192 bytes per position are written. Kernel 1 reads k and T once per 128 columns of
/// [V | -K], and these columns. The walk reads q, k and T once per 64 columns, and v; it writes o.
/// Bound by: with few heads and long sequences the memory's bandwidth and the chains of the three kernels; with short
/// sequences launches.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: it has twice the operations. If there are enough heads to occupy all multiprocessors, it is slower than a
/// single walk. `dispatch` chooses between the two.
/// Sources: chapter 06's `affine_chain`, with dense maps in fp32; FlashInfer's delta rule for Hopper has cut sequences
/// this way since version 0.7.

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "05_deltanet_wy/chunk/prepare_inverses.hpp"
#include "05_deltanet_wy/chunk/segment_maps.cuh"
#include "05_deltanet_wy/chunk/split_triangle.cuh"
#include "05_deltanet_wy/chunk/walk_for_map.cuh"
#include "05_deltanet_wy/chunk/warpgroup_products.cuh"
#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/parts.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::delta_rule {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 3;               // chunks in shared memory
constexpr int kDepth = 2;                       // O in shared memory
constexpr int kBlockThreads = 3 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// A chunk in shared memory. All but P is loaded.
template <class Shape>
struct Tiles : ChunkTiles<Shape> {
  SplitTriangle T;
  SquarePanel P;

  static constexpr int kLoadedBytes = ChunkTiles<Shape>::kBytes + int(SplitTriangle::Panel::kPanelBytes);
  static constexpr int kBytes = kLoadedBytes + int(SquarePanel::kPanelBytes);

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : ChunkTiles<Shape>(memory),
        T{{reinterpret_cast<__nv_bfloat16*>(memory + ChunkTiles<Shape>::kBytes)}},
        P{T.panel.data + SplitTriangle::Panel::kPanelElements} {}
};

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* Tiles<Shape>::kBytes + kDepth* ValuePanel::kPanelBytes;

/// Kernel 1: walks all segments but the last from a state of zeros, with the values V or -K. The first segment starts
/// from S_0, and its Psi is not needed. Grid (tiles of 128 columns of [V | -K] of these segments, H, B).
/// @param inverses those of prepare_inverses()
template <class Shape>
__global__ void __launch_bounds__(kMapThreads, 1)
    segment_maps_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                        const __grid_constant__ TensorMap inverses, LaunchPlan plan, SegmentMaps<Shape::kDk> out) {
  const int chunks = plan.length / kChunk, tiles = out.blocks(), segment = int(blockIdx.x) / tiles;
  let_next_kernel_start();
  walk_for_map<Shape>(a, maps, inverses, out, {segment, segment == 0, chunks, segment * plan.length, segment * chunks});
}

/// Kernel 3. Grid (tiles of 64 columns of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    segment_walk_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                        const __grid_constant__ TensorMap inverses, LaunchPlan plan, SegmentMaps<Shape::kDk> starts) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns;
  __shared__ Barrier full[kPipelineDepth], scores_full[kPipelineDepth], empty[kPipelineDepth];
  __shared__ Barrier output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return Tiles<Shape>(memory + stage * Tiles<Shape>::kBytes); };
  const auto output = [&](int number) {
    return ValuePanel{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles<Shape>::kBytes +
                                                       number * int(ValuePanel::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : scores_full) barrier.init(4);
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    decrease_registers<64>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = part.begin; t < part.end; t += kChunk) {
        const Tiles<Shape> tiles = tiles_of(ring.stage());
        ring.wait(empty);
        fence_async_proxy();  // V has been read by ldmatrix
        full[ring.stage()].arrive_expect(Tiles<Shape>::kLoadedBytes);
        load_chunk(tiles, maps, full[ring.stage()], b, h, t, first_column);
        wait_for_previous_kernel();  // T
        load_tile(inverses, tiles.T.panel.data, full[ring.stage()],
                  {.position = t / kChunk * kInverseRows, .head = h, .batch = b});
        ring.advance();
      }
    } else if (thread >= 32) {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = part.begin; t < part.end; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns,
                                     output(output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else if (group == 1) {
    decrease_registers<96>();
    auto ring = Ring<kPipelineDepth>::consumer();
    for (int t = part.begin; t < part.end; t += kChunk) {
      const Tiles<Shape> tiles = tiles_of(ring.stage());
      WarpgroupScores P;
      ring.wait(full);
      wgmma_fence(P);
      start_scores(P, tiles.Q, tiles.K);
      wgmma_commit();
      wgmma_wait<0>(P);
      store_masked_scores(tiles.P, P);
      fence_async_proxy();
      __syncwarp();
      if (lane_index() == 0) scores_full[ring.stage()].arrive();
      ring.advance();
    }
  } else {
    increase_registers<240>();
    WarpgroupState<Shape::kDk> S;
    const Columns own{b, h, part.segment, first_column / Shape::kDv};
    wait_for_previous_kernel();
    part.segment == 0 ? starts.load_initial(S, a, own) : starts.load_start(S, a, own);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto output_ring = Ring<kDepth>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, v_new, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_columns();
    // residual = -V of the next chunk. K of that chunk has arrived with it.
    const auto load_values = [&] {
      const ValuePanel V = tiles_of(ring.stage()).V;
      ring.wait(full);
      ring.advance();
      load_signed_values(residual, V, unit, kMinus);
    };
    // residual += K S of the chunk `read`.
    const auto start_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, tiles_of(read.stage()).K);
      wgmma_commit();
    };
    // Starts from the residual of a chunk: computes its v_new, updates S, computes its outputs and the residual of the
    // next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const Tiles<Shape> tiles = tiles_of(read.stage());
      round_columns(factor, residual);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, tiles.T);
      wgmma_commit();
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      wgmma_commit();
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      read.wait(scores_full);
      wgmma_fence(S, factor, residual);
      start_state_update<Shape::kDk>(S, factor, tiles.K);
      wgmma_commit();
      start_output_from_values(O, factor, tiles.P);
      wgmma_commit();
      const int chunk = read.stage();
      read.advance();
      if constexpr (HasNext::value) {
        wgmma_wait<1>(S);
        start_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      __syncwarp();  // all lanes have read their part of V
      if (lane_index() == 0) empty[chunk].arrive();
      output_ring.wait(output_empty);
      put_output(output(output_ring.stage()), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
      if constexpr (HasNext::value) wgmma_wait<0>(residual);
    };

    load_values();
    start_state_product();
    wgmma_wait<0>(residual);
    for (int t = part.begin; t + kChunk < part.end; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (part.end == a.L && a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

LaunchPlan one_wave_of_segments(const Bf16Arguments& a) {
  const int most = int(2 * std::sqrt(ceil_div(a.L, kChunk)));
  const std::int64_t wave = multiprocessor_count() / (std::int64_t(a.B) * a.H * ceil_div(a.Dv, kWarpgroupColumns));
  return make_launch_plan(a.L, kWarpgroupColumns, int(std::clamp<std::int64_t>(wave, 1, most)));
}

void segments(const Bf16Arguments& a, const LaunchPlan& plan) {
  const PreparedInverses x = prepare_inverses(a);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    const SegmentMaps<Shape::kDk> segment_maps(a, plan.segments - 1);
    if (segment_maps.count > 0) {
      LaunchConfig config = segment_maps.template config<Shape>(a);
      config.starts_early = true;
      launch(segment_maps_kernel<Shape>, config, a, chunk_maps(a), map_of(x, a), plan, segment_maps);
      carry_segments<Shape>(a, segment_maps, true);
      end_part("segments");
    }
    LaunchConfig config(grid_of<Shape>(extents_of(a), plan.segments), kBlockThreads, kSharedBytes<Shape>);
    config.starts_early = true;
    launch(segment_walk_kernel<Shape>, config, a, chunk_maps(a), map_of(x, a), plan, segment_maps);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  end_part("walk");
}

void segments(const Bf16Arguments& a) {
  segments(a, one_wave_of_segments(a));
}

}  // namespace tutorial::delta_rule
