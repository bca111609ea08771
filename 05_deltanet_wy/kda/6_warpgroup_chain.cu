/// @file
/// `warpgroup_chain`: delta_rule's chain on warpgroups, with decayed rows in the place of q and k.
///
/// Idea: K+, Q+ and K- contain their decays, so the products of a chunk are delta_rule's. The only thing left for the
/// walk is the state's own decay: a row of S is a column of S^T, so each thread multiplies its accumulators by the
/// decays of their columns, while v_new is computed. But a chunk has three tiles of Dk columns where delta_rule has two,
/// and three chunks of them do not fit into shared memory. So loads are split by when their data is needed: K+ and V by
/// the end of the chunk before, everything else when the chunk begins.
///
///     tensor core | v_new | Q+ S ......... | S update ..... | P v_new | | K+ S of n + 1 |
///     threads     | exp(b_end) S, -V of n + 1 | round v_new | wait      | round S   | put O of n   | round residual
///
/// Where there are more tiles of 64 columns than multiprocessors, a block has 128 columns, 64 for each of two
/// warpgroups. They read the same tiles, and one computes while the other waits.
/// Grows out of: 05_deltanet_wy/delta_rule/12_warpgroup_chain.cu
/// Improves on: in `specialized_warps` each warp of the chain reads K+, K- and T from shared memory for itself, and
/// passes S and v_new to other warps through shared memory.
/// Unchanged: the products and their order, T in two bf16, and what is rounded.
///
/// Equation: that of `tensor_core`.
///
/// Shapes: those of `tensor_core`. prepare_tiles() leaves -T and P as rows of 64, for bulk copies.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 or 128 columns of Dv. One warp of
/// warpgroup 0 loads, three of its warps store outputs, and one warpgroup has the state for each 64 columns. All lanes
/// of the loading warp fetch decays, one chunk ahead of the bulk copies.
/// Synchronization: two rings. K+ and V are free (`read_empty`) when the warps of the state have waited for the residual,
/// the other tiles (`empty`) when they have waited for their last product. An output tile is free (`output_empty`) when
/// the warps that store have read it.
/// Resources: at Dk = 128, for 64 columns two times 24 KB and three times 57 KB, for 128 columns two times 32 KB and two
/// times 57 KB, and 8 KB of outputs for each 64: 225 or 194 KB of shared memory, one block per multiprocessor. Per
/// thread of the state 64 registers for S, 32 for its rounded copy, and 32 each for residual, v_new and O. Where there are
/// two such warpgroups, each of their threads gets 216 and the others 72.
/// Work: that of prepare_tiles(), 6 Dk Dv + 320 Dv operations per position on tensor cores; Dk Dv / 64 multiplications.
/// Bytes: v and o once; 1160 bytes of decayed rows, T, P and decays per position (at Dk = 128) once per tile of Dv;
/// those of prepare_tiles().
/// Bound by: with few heads the chain; with many heads the memory's bandwidth, in both kernels.
/// Requires: compute capability 9.0, Dk <= 128, Dk and Dv multiples of 16, tensors that a tensor map can describe.
/// Weakness: Q+, K+, K-, T and P go through memory, and there is only one block per head and tile of Dv.
/// Sources: those of `tensor_core`; the transposed chain on warpgroups: FlashInfer's delta rule for Hopper.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/delta_rule/prepared.hpp"
#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "05_deltanet_wy/kda/prepared.hpp"
#include "common/ceil_div.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/registers.cuh"
#include "common/parts.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/requirements.hpp"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::kda {
namespace {

using namespace tile;
using namespace delta_rule;  // products of a chunk

constexpr int kReadDepth = 2;                   // tiles of K+ and V in shared memory
constexpr int kStoreThreads = kWarpgroup - 32;  // of a block

template <class Shape>
constexpr int kWalkers = Shape::kDv / kWarpgroupColumns;  // warpgroups that have a part of the state
template <class Shape>
constexpr int kBlockThreads = (1 + kWalkers<Shape>)*kWarpgroup;
template <class Shape>
constexpr int kPipelineDepth = kWalkers<Shape> == 1 ? 3 : 2;  // of the other tiles

/// The tensors that bulk copies read.
struct Maps {
  TensorMap Q, K, K_end, v, tiles;
};

/// What is needed one chunk ahead, in shared memory.
template <class Shape>
struct ReadTiles {
  typename Shape::KeyTile K;
  typename Shape::ValueTile V;

  static constexpr int kBytes = kChunk * (Shape::kDk + Shape::kDv) * int(sizeof(__nv_bfloat16));

  __device__ __forceinline__ explicit ReadTiles(unsigned char* memory)
      : K{reinterpret_cast<__nv_bfloat16*>(memory)}, V{K.data + kChunk * Shape::kDk} {}
};

/// The rest of a chunk.
template <class Shape>
struct Tiles {
  typename Shape::KeyTile Q, K_end;
  SquarePanel T_high, T_low, P;

  static constexpr int kBytes =
      2 * kChunk * Shape::kDk * int(sizeof(__nv_bfloat16)) + 3 * int(SquarePanel::kPanelBytes);

  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : Q{reinterpret_cast<__nv_bfloat16*>(memory)},
        K_end{Q.data + kChunk * Shape::kDk},
        T_high{K_end.data + kChunk * Shape::kDk},
        T_low{T_high.data + SquarePanel::kPanelElements},
        P{T_low.data + SquarePanel::kPanelElements} {}
};

template <class Shape>
constexpr std::size_t kSharedBytes = kReadDepth* ReadTiles<Shape>::kBytes +
                                     kPipelineDepth<Shape>*(Tiles<Shape>::kBytes + Shape::kDk * sizeof(float)) +
                                     kWalkers<Shape>* ValuePanel::kPanelBytes;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads<Shape>, 1)
    warpgroup_chain_kernel(Bf16Arguments a, const __grid_constant__ Maps maps, const float* all_decays) {
  constexpr int kWalkers = kda::kWalkers<Shape>, kDepth = kPipelineDepth<Shape>;
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  __shared__ Barrier read_full[kReadDepth], read_empty[kReadDepth], full[kDepth], empty[kDepth];
  __shared__ Barrier output_full[kWalkers], output_empty[kWalkers];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto read_tiles_of = [&](int stage) { return ReadTiles<Shape>(memory + stage * ReadTiles<Shape>::kBytes); };
  auto* behind = memory + kReadDepth * ReadTiles<Shape>::kBytes;
  const auto tiles_of = [&](int stage) { return Tiles<Shape>(behind + stage * Tiles<Shape>::kBytes); };
  const auto output = [&](int walker) {
    return ValuePanel{reinterpret_cast<__nv_bfloat16*>(behind + kDepth * Tiles<Shape>::kBytes) +
                      walker * ValuePanel::kPanelElements};
  };
  const auto decays_of = [&](int stage) {
    return reinterpret_cast<float*>(output(kWalkers).data) + stage * Shape::kDk;
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : read_full) barrier.init(1);
    for (Barrier& barrier : read_empty) barrier.init(4 * kWalkers);
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4 * kWalkers);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    if (kWalkers == 2) decrease_registers<72>();
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      auto read_ring = Ring<kReadDepth>::producer();
      auto ring = Ring<kDepth>::producer();
      const int chunks = (a.L - 1) / kChunk + 1, d = thread * 4;
      const float* decays = all_decays + (std::int64_t(b) * a.H + h) * chunks * a.Dk + d;  // the lane's
      float4 next{};
      const auto load_decays = [&](int n) {
        if (d < a.Dk) next = load_global(reinterpret_cast<const float4*>(decays + n * a.Dk));
      };
      load_decays(0);
      for (int n = 0; n < chunks; ++n) {
        const int t = n * kChunk;
        read_ring.wait(read_empty);
        if (thread == 0) {
          Barrier& barrier = read_full[read_ring.stage()];
          const ReadTiles<Shape> tiles = read_tiles_of(read_ring.stage());
          barrier.arrive_expect(ReadTiles<Shape>::kBytes);
          load_panels(tiles.K, maps.K, barrier, {.position = t, .head = h, .batch = b});
          load_panels(tiles.V, maps.v, barrier, {.column = first_column, .position = t, .head = h, .batch = b});
        }
        read_ring.advance();
        ring.wait(empty);
        if (thread == 0) {
          Barrier& barrier = full[ring.stage()];
          const Tiles<Shape> tiles = tiles_of(ring.stage());
          barrier.arrive_expect(Tiles<Shape>::kBytes);
          load_tile(maps.tiles, tiles.T_high.data, barrier, {.position = n * kPreparedRows, .head = h, .batch = b});
          load_panels(tiles.Q, maps.Q, barrier, {.position = t, .head = h, .batch = b});
          load_panels(tiles.K_end, maps.K_end, barrier, {.position = t, .head = h, .batch = b});
        }
        if (d < Shape::kDk) *reinterpret_cast<float4*>(decays_of(ring.stage()) + d) = next;
        __syncwarp();
        if (thread == 0) full[ring.stage()].arrive();
        if (n + 1 < chunks) load_decays(n + 1);
        ring.advance();
      }
    } else {
      auto ring = Ring<1>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
#pragma unroll 1
        for (int walker = 0; walker < kWalkers; ++walker) {
          const int column = first_column + walker * kWarpgroupColumns;
          ring.wait(output_full + walker);
          store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + column, a.o.stride_l, a.L - t, a.Dv - column,
                                       output(walker), [&] {
                                         __syncwarp();
                                         if (lane_index() == 0) output_empty[walker].arrive();
                                       });
        }
        ring.advance();
      }
    }
  } else {
    if (kWalkers == 2) increase_registers<216>();
    const int walker = group - 1, column = first_column + walker * kWarpgroupColumns, columns = a.Dv - column;
    WarpgroupState<Shape::kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto read_ring = Ring<kReadDepth>::consumer();  // one chunk ahead of `ring`
    auto ring = Ring<kDepth>::consumer();
    auto output_ring = Ring<1>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, v_new, O;
    WarpgroupFragments factor;
    const int unit = first_unit_of_values();
    // residual = -V of the next chunk. K+ of that chunk has arrived with it.
    const auto load_values = [&] {
      read_ring.wait(read_full);
      const auto V = read_tiles_of(read_ring.stage()).V;
      load_signed_values(residual, ValuePanel{V.data + walker * ValuePanel::kPanelElements}, unit, kMinus);
    };
    // residual += K+ S of that chunk.
    const auto add_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_residual<Shape::kDk>(residual, s, read_tiles_of(read_ring.stage()).K);
      wgmma_commit();
    };
    const auto finish_residual = [&] {
      wgmma_wait<0>(residual);
      __syncwarp();  // all lanes have read their part of V
      if (lane_index() == 0) read_empty[read_ring.stage()].arrive();
      read_ring.advance();
    };
    // Starts from the residual of a chunk: computes its v_new, updates S, computes its outputs and the residual of the
    // next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const Tiles<Shape> tiles = tiles_of(ring.stage());
      round_columns(factor, residual);
      ring.wait(full);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
      wgmma_commit();
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      wgmma_commit();
      decay_columns(S, decays_of(ring.stage()));
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      wgmma_fence(S, factor, residual);
      start_state_update<Shape::kDk>(S, factor, tiles.K_end);
      wgmma_commit();
      start_output_from_values(O, factor, tiles.P);
      wgmma_commit();
      if constexpr (HasNext::value) {
        wgmma_wait<1>(S);
        add_state_product();
        wgmma_wait<1>(O);
      } else {
        wgmma_wait<0>(S, O);
      }
      __syncwarp();  // all lanes have read the decays
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      output_ring.wait(output_empty + walker);
      put_output(output(walker), O, a.scale);
      __syncwarp();
      if (lane_index() == 0) output_full[walker].arrive();
      output_ring.advance();
      if constexpr (HasNext::value) finish_residual();
    };

    load_values();
    add_state_product();
    finish_residual();
    for (int t = 0; t + kChunk < a.L; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + column, S, a.final_state.stride_l, a.Dk, columns);
    }
  }
}

Maps maps_of(const PreparedTiles& x, const Bf16Arguments& a) {
  const std::int64_t rows = std::int64_t(x.N) * kChunk, tile_rows = std::int64_t(x.N) * kPreparedRows;
  const auto keys = [&](__nv_bfloat16* data) {
    return tile_map(packed(data, a.H, rows, a.Dk), {a.B, a.H, rows, a.Dk}, kChunk);
  };
  return {keys(x.Q), keys(x.K), keys(x.K_end), tile_map(a.v, tensor_sizes(a, a.Dv), kChunk),
          tile_map(packed(x.tiles, a.H, tile_rows, kChunk), {a.B, a.H, tile_rows, kChunk}, kPreparedRows)};
}

}  // namespace

void warpgroup_chain(const Bf16Arguments& a) {
  const PreparedTiles x = prepare_tiles(a);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    launch(warpgroup_chain_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlockThreads<Shape>, kSharedBytes<Shape>},
           a, maps_of(x, a), x.decays);
  };
  if (chain_columns(a) == 64) {
    a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  } else {
    a.Dk <= 64 ? start(PanelShape<64, 128>()) : start(PanelShape<128, 128>());
  }
  end_part("walk");
}

std::string warpgroup_chain_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = kda::tensor_core_unsupported(a); !reason.empty()) return reason;
  return bulk_copies_unsupported(a);
}

std::int64_t warpgroup_chain_memory(const Bf16Arguments& a) {
  return prepared_tiles_memory(a);
}

int chain_columns(const Bf16Arguments& a) {
  const bool each_has_a_multiprocessor = std::int64_t(a.B) * a.H * ceil_div(a.Dv, 64) <= multiprocessor_count();
  return a.Dv <= 64 || each_has_a_multiprocessor ? 64 : 128;
}

}  // namespace tutorial::kda
