/// @file
/// Stage 13, `segments`: the sequence is cut into segments, which the GPU walks at the same time.
///
/// Idea: a segment turns the state S that it starts from into Phi S + H, with a matrix Phi [Dk, Dk]. In terms of T, a
/// chunk turns S into S + K^T T (V - K S). For V = -K and S = E this is E + K^T T (-K - K E) = (I - K^T T K) (I + E) -
/// I. So a walk that starts from zeros ends with H if its values are V, and with E = Phi - I if its values are -K.
/// Therefore kernel 1 walks all segments at once, without outputs, over the Dv + Dk columns of [V | -K]. Kernel 2
/// (segment_maps.cuh) goes from segment to segment, S + E S + H. Then kernel 3, that of `warpgroup_chain`, walks all
/// segments at once.
///
///     segment       0               1                 2               3
///     kernel 1   S_0, V -> H_0   V -> H_1, -K -> E_1   V -> H_2, -K -> E_2          at once: reads K, V, T
///     kernel 2               H_0 ------> + E_1 H_0 + H_1 ---> + E_2 . + H_2        a chain of products
///                   |             |                 |               |
///     kernel 3    walk          walk              walk            walk -> S_L        at once
///
/// Why E and not Phi: factors are rounded. Phi S would round the whole state. In S + E S the first S stays in fp32, and
/// E is small if little is written.
/// Grows out of: 12_warpgroup_chain.cu
/// Improves on: `warpgroup_chain` has only one block per head and tile of Dv.
/// Unchanged: its kernel, which now walks from `begin` to `end`.
/// Equation:
///
///   own_s = H_s, where H_0 starts from S_0        start of s + 1 = start of s + E_s (start of s) + H_s
///
/// Shapes: those of `warpgroup_chain`; for all segments but the last, H_s [Dk, Dv] fp32, whose place the starts take
/// later, and E_s^T [Dk, Dk] bf16 in global memory.
/// Thread mapping: kernel 1 has one block per 128 columns of H or E of a segment, with one warpgroup per 64 columns and
/// a thread that loads. While one warpgroup waits for a product, the other computes. Kernel 3 works as in
/// `warpgroup_chain`.
/// Resources: kernel 1 has four chunks of K, T and the columns, 192 KB at Dk = 128: one block per multiprocessor.
/// Work: that of `warpgroup_chain`; (4 Dk + 192) (Dk + Dv) operations per position for kernel 1; 2 Dk^2 Dv per segment
/// for kernel 2.
/// Bytes: beside those of `warpgroup_chain`, kernel 1 reads V, and K and T once per 128 columns of [V | -K].
/// Bound by: with few heads prepare_tiles() and the chains of the three kernels.
/// Requires: what `warpgroup_chain` requires.
/// Weakness: it has twice the operations. If there are enough heads to occupy all multiprocessors, it is slower than a
/// single walk. `dispatch` chooses between the two.
/// Sources: chapter 06's `affine_chain`, with dense maps in fp32; FlashInfer's delta rule for Hopper has cut sequences
/// this way since version 0.7.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/segment_maps.cuh"
#include "05_deltanet_wy/delta_rule/segments.hpp"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
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
constexpr int kBlockThreads = 2 * kWarpgroup;   // of a block
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// A chunk in shared memory.
template <class Shape>
struct Tiles : ChunkTiles<Shape> {
  SquarePanel T_high, T_low, P;

  static constexpr int kBytes = ChunkTiles<Shape>::kBytes + 3 * int(SquarePanel::kPanelBytes);

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : ChunkTiles<Shape>(memory),
        T_high{reinterpret_cast<__nv_bfloat16*>(memory + ChunkTiles<Shape>::kBytes)},
        T_low{T_high.data + SquarePanel::kPanelElements},
        P{T_low.data + SquarePanel::kPanelElements} {}
};

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* Tiles<Shape>::kBytes + kDepth* ValuePanel::kPanelBytes;

/// Kernel 1: walks all segments but the last from a state of zeros, with the values V or -K. The first segment starts
/// from S_0, and its E is not needed. Grid (tiles of 128 columns of [V | -K] of these segments, H, B).
/// @param inverses those of prepare_tiles(), without P
template <class Shape>
__global__ void __launch_bounds__(kMapThreads, 1)
    segment_maps_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                        const __grid_constant__ TensorMap inverses, LaunchPlan plan, SegmentMaps<Shape::kDk> out) {
  constexpr int kDk = Shape::kDk, kDepth = MapTiles<kDk>::kDepth;
  const int b = int(blockIdx.z), h = int(blockIdx.y), chunks = plan.length / kChunk;
  const int key_tile = (out.tiles + 1) / 2, segment = int(blockIdx.x) / (key_tile + 1);
  const int tile = int(blockIdx.x) % (key_tile + 1), group = int(threadIdx.x) / kWarpgroup;
  const bool is_key = tile == key_tile;
  if (is_key && segment == 0) return;
  __shared__ Barrier full[kDepth], empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return MapTiles<kDk>(memory + stage * MapTiles<kDk>::kBytes); };
  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(2 * 4);
    fence_barrier_init();
  }
  __syncthreads();

  if (group == 2) {
    if (threadIdx.x > 2 * kWarpgroup) return;
    auto ring = Ring<kDepth>::producer();
    for (int n = segment * chunks; n < (segment + 1) * chunks; ++n) {
      const MapTiles<kDk> tiles = tiles_of(ring.stage());
      Barrier& barrier = full[ring.stage()];
      ring.wait(empty);
      fence_async_proxy();  // V has been read by ldmatrix
      barrier.arrive_expect(MapTiles<kDk>::kBytes);
      load_panels(tiles.K, maps.k, barrier, {.position = n * kChunk, .head = h, .batch = b});
      load_panels(tiles.V, is_key ? maps.k : maps.v, barrier,
                  {.column = is_key ? 0 : tile * 128, .position = n * kChunk, .head = h, .batch = b});
      load_tile(inverses, tiles.T_high.data, barrier, {.position = n * kPreparedRows, .head = h, .batch = b});
      ring.advance();
    }
    return;
  }
  const Columns columns{b, h, segment, is_key ? group : 2 * tile + group};
  WarpgroupState<Shape::kDk> S = {};
  if (segment == 0) out.load_initial(S, a, columns);
  RoundedState<Shape::kDk> s;
  WarpgroupColumns residual, v_new;
  WarpgroupFragments factor;
  const int unit = first_unit_of_columns();
  auto ring = Ring<kDepth>::consumer();
  for (int n = 0; n < chunks; ++n) {
    const MapTiles<kDk> tiles = tiles_of(ring.stage());
    round_state<kDk>(s, S);
    ring.wait(full);
    load_signed_values(residual, tiles.columns(group), unit, is_key ? kPlus : kMinus);
    wgmma_fence(residual, s);
    start_residual<kDk>(residual, s, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(residual);
    round_columns(factor, residual);
    wgmma_fence(v_new, factor);
    start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
    wgmma_commit();
    wgmma_wait<0>(v_new);
    round_columns(factor, v_new);
    wgmma_fence(S, factor);
    start_state_update<kDk>(S, factor, tiles.K);
    wgmma_commit();
    wgmma_wait<0>(S);
    __syncwarp();  // all lanes have read their part of V
    if (lane_index() == 0) empty[ring.stage()].arrive();
    ring.advance();
  }
  is_key ? out.store_transition(a, columns, S) : out.store_state(a, columns, S);
}

/// Kernel 3. Grid (tiles of 64 columns of Dv of all segments, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    segment_walk_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                        const __grid_constant__ TensorMap prepared, LaunchPlan plan, SegmentMaps<Shape::kDk> starts) {
  const BlockPart<Shape> part(extents_of(a), plan.length);
  const int b = part.b, h = part.h, first_column = part.first_column, columns = part.columns;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return Tiles<Shape>(memory + stage * Tiles<Shape>::kBytes); };
  const auto output = [&](int number) {
    return ValuePanel{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles<Shape>::kBytes +
                                                       number * int(ValuePanel::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1);
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = part.begin; t < part.end; t += kChunk) {
        const Tiles<Shape> tiles = tiles_of(ring.stage());
        ring.wait(empty);
        fence_async_proxy();  // V has been read by ldmatrix
        full[ring.stage()].arrive_expect(Tiles<Shape>::kBytes);
        load_chunk(tiles, maps, full[ring.stage()], b, h, t, first_column);
        load_tile(prepared, tiles.T_high.data, full[ring.stage()],
                  {.position = t / kChunk * kPreparedRows, .head = h, .batch = b});
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
  } else {
    WarpgroupState<Shape::kDk> S;
    const Columns own{b, h, part.segment, first_column / Shape::kDv};
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
    const auto add_state_product = [&] {
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
      start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
      wgmma_commit();
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      wgmma_commit();
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      wgmma_fence(S, factor, residual);
      start_state_update<Shape::kDk>(S, factor, tiles.K);
      wgmma_commit();
      start_output_from_values(O, factor, tiles.P);
      wgmma_commit();
      const int chunk = read.stage();
      read.advance();
      if constexpr (HasNext::value) {
        wgmma_wait<1>(S);
        add_state_product();
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
    add_state_product();
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

void walk_segments(const Bf16Arguments& a, const LaunchPlan& plan) {
  const PreparedTiles x = prepare_tiles(a);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    const SegmentMaps<Shape::kDk> segment_maps(a, plan.segments - 1);
    if (segment_maps.count > 0) {
      launch(segment_maps_kernel<Shape>, segment_maps.template config<Shape>(a), a, chunk_maps(a),
             map_of(x, a, 2 * kChunk), plan, segment_maps);
      carry_segments<Shape>(a, segment_maps);
      end_part("segments");
    }
    launch(segment_walk_kernel<Shape>,
           {grid_of<Shape>(extents_of(a), plan.segments), kBlockThreads, kSharedBytes<Shape>}, a, chunk_maps(a),
           map_of(x, a), plan, segment_maps);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  end_part("walk");
}

void segments(const Bf16Arguments& a) {
  walk_segments(a, one_wave_of_segments(a));
}

std::int64_t segments_memory(const Bf16Arguments& a) {
  return walk_segments_memory(a, one_wave_of_segments(a));
}

}  // namespace tutorial::delta_rule
