/// @file
/// `warpgroup_chain`: gates in the gaps of the chain.
///
/// Idea: the chain of `delta_rule` on warpgroups leaves its threads idle while products run. The factors of the gates
/// fit into these gaps: the state is multiplied by exp(b_e) while v_new is computed, and Q S by its decays while the
/// state is updated. Only two factors are in line, because the next product waits for them: those of K S and those of
/// v_new on its way into the state.
///
///     tensor core | v_new | Q S ......... | S update ..... | P v_new | | K S of n + 1 |
///     threads     | exp(b_e) S, -V of n + 1 | round v_new twice | D_q Q S | round S | put O of n | D_k K S - V, round
///
/// Grows out of: 05_deltanet_wy/delta_rule/12_warpgroup_chain.cu
/// Improves on: in `tensor_core` the same warps load, multiply and store, one after the other.
/// Unchanged: what is rounded, the tiles, and the roles of the warps. The sums of K S begin with zeros, and -V waits in
/// registers that v_new does not need any more.
///
/// Equation: that of `tensor_core`.
///
/// Shapes: those of `tensor_core`. prepare_tiles() leaves -T and P as rows of 64, for bulk copies, and the decays.
/// Thread mapping: block (tile, h, b) walks over the chunks of a head with 64 columns of Dv. One warp of warpgroup 0
/// loads, three of its warps store outputs, and warpgroup 1 has the state. All lanes of the loading warp fetch decays,
/// one chunk ahead of the bulk copies.
/// Synchronization: a chunk is there (`full`) when its bytes have arrived and its decays are stored. Its tiles are free
/// (`empty`) when the warps of the state have waited for its last product. An output tile is free (`output_empty`) when
/// the warps that store have read it.
/// Resources: at Dk = 128 three chunks of 65 KB and two tiles of outputs, 210 KB of shared memory: one block per
/// multiprocessor. Per thread 64 registers for S, 32 for its rounded copy, and 32 each for residual or v_new, -V and O.
/// Work: that of prepare_tiles(), 6 Dk Dv + 320 Dv operations per position on tensor cores, and the multiplications of
/// `tensor_core`.
/// Bytes: v and o once; q, k and 396 bytes of T, P and decays per position once per tile of 64 columns; q and k once
/// more in prepare_tiles(), which writes those 396 bytes.
/// Bound by: with few heads the chain; with many heads prepare_tiles() and the memory's bandwidth.
/// Requires: compute capability 9.0, Dk <= 128, Dk and Dv multiples of 16, tensors that a tensor map can describe.
/// Weakness: T and P go through memory, and there is only one block per head and tile of Dv.
/// Sources: those of `tensor_core`; the transposed chain on warpgroups: FlashInfer's delta rule for Hopper.

#include <cuda_runtime.h>

#include <type_traits>

#include "05_deltanet_wy/delta_rule/warpgroup_products.cuh"
#include "05_deltanet_wy/gated_delta_rule/chunk_decays.cuh"
#include "05_deltanet_wy/gated_delta_rule/prepared.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/parts.hpp"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_chunk.cuh"

namespace tutorial::gated_delta_rule {
namespace {

using namespace tile;
using namespace delta_rule;  // products of a chunk

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
constexpr std::size_t kSharedBytes =
    kPipelineDepth*(Tiles<Shape>::kBytes + kDecays * sizeof(float)) + kDepth* ValuePanel::kPanelBytes;

/// Grid (tiles of 64 columns of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kBlockThreads, 1)
    warpgroup_chain_kernel(Bf16Arguments a, const __grid_constant__ ChunkMaps maps,
                           const __grid_constant__ TensorMap prepared, const float* all_decays) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * Shape::kDv;
  const int columns = min(Shape::kDv, a.Dv - first_column);
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return Tiles<Shape>(memory + stage * Tiles<Shape>::kBytes); };
  const auto output = [&](int number) {
    return ValuePanel{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles<Shape>::kBytes +
                                                       number * int(ValuePanel::kPanelBytes))};
  };
  const auto decays_of = [&](int stage) { return reinterpret_cast<float*>(output(kDepth).data) + stage * kDecays; };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(2);  // one for the bytes, one for the decays
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup;
  if (group == 0) {
    const int thread = int(threadIdx.x) % kWarpgroup;
    if (thread < 32) {
      auto ring = Ring<kPipelineDepth>::producer();
      const int chunks = (a.L - 1) / kChunk + 1;
      ChunkDecays decays(all_decays + (std::int64_t(b) * a.H + h) * chunks * kDecays, 0, chunks);
      for (int n = 0; n < chunks; ++n) {
        const Tiles<Shape> tiles = tiles_of(ring.stage());
        ring.wait(empty);
        if (thread == 0) {
          fence_async_proxy();  // V has been read by ldmatrix
          full[ring.stage()].arrive_expect(Tiles<Shape>::kBytes);
          load_chunk(tiles, maps, full[ring.stage()], b, h, n * kChunk, first_column);
          load_tile(prepared, tiles.T_high.data, full[ring.stage()],
                    {.position = n * kPreparedRows, .head = h, .batch = b});
        }
        decays.store(decays_of(ring.stage()));
        __syncwarp();
        if (thread == 0) full[ring.stage()].arrive();
        ring.advance();
      }
    } else {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
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
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<Shape::kDk>(S, start, a.initial_state.stride_l, a.Dk, columns);
    auto ring = Ring<kPipelineDepth>::consumer();  // one chunk ahead of `read`
    auto read = ring;
    auto output_ring = Ring<kDepth>::producer();

    RoundedState<Shape::kDk> s;
    WarpgroupColumns residual, values, v_new, O;
    WarpgroupFragments factor, to_state;
    const int unit = first_unit_of_columns();
    // values = -V of the next chunk. K of that chunk has arrived with it.
    const auto load_values = [&] {
      const ValuePanel V = tiles_of(ring.stage()).V;
      ring.wait(full);
      ring.advance();
      load_signed_values(values, V, unit, kMinus);
    };
    // residual = K S of the chunk `read`.
    const auto start_state_product = [&] {
      round_state<Shape::kDk>(s, S);
      wgmma_fence(residual, s);
      start_output_from_state<Shape::kDk>(residual, s, tiles_of(read.stage()).K);  // K in place of Q
      wgmma_commit();
    };
    // residual = D_k K S - V of the chunk `read`.
    const auto finish_residual = [&] {
      wgmma_wait<0>(residual);
      decay_columns(residual, decays_of(read.stage()) + kOfKeys * kChunk);
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) residual[i] += values[i];
    };
    // Starts from the residual of a chunk: computes its v_new, updates S, computes its outputs and the residual of the
    // next chunk.
    const auto walk = [&]<class HasNext>(HasNext) {
      const Tiles<Shape> tiles = tiles_of(read.stage());
      const float *of_queries = decays_of(read.stage()) + kOfQueries * kChunk,
                  *to_end = decays_of(read.stage()) + kToEnd * kChunk;
      round_columns(factor, residual);
      wgmma_fence(v_new, factor);
      start_new_values(v_new, factor, tiles.T_high, tiles.T_low);
      wgmma_commit();
      wgmma_fence(O, s);
      start_output_from_state<Shape::kDk>(O, s, tiles.Q);
      wgmma_commit();
      const float whole = of_queries[kChunk - 1];
#pragma unroll
      for (float& element : S) element *= whole;
      if constexpr (HasNext::value) load_values();
      wgmma_wait<1>(v_new);
      round_columns(factor, v_new);
      decay_columns(v_new, to_end);
      round_columns(to_state, v_new);
      wgmma_fence(S, to_state, values);
      start_state_update<Shape::kDk>(S, to_state, tiles.K);
      wgmma_commit();
      wgmma_wait<1>(O);
      decay_columns(O, of_queries);
      wgmma_fence(O, factor);
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
      if constexpr (HasNext::value) finish_residual();
    };

    load_values();
    start_state_product();
    finish_residual();
    for (int t = 0; t + kChunk < a.L; t += kChunk) walk(std::true_type());
    walk(std::false_type());
    if (a.final_state.data) {
      store_group_state<Shape::kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                                    columns);
    }
  }
}

}  // namespace

void warpgroup_chain(const Bf16Arguments& a) {
  const PreparedTiles x = prepare_tiles(a);
  end_part("prepare");
  const auto start = [&]<class Shape>(Shape) {
    launch(warpgroup_chain_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kBlockThreads, kSharedBytes<Shape>}, a,
           chunk_maps(a), map_of(x, a), x.decays);
  };
  a.Dk <= 64 ? start(PanelShape<64, 64>()) : start(PanelShape<128, 64>());
  end_part("walk");
}

std::string warpgroup_chain_unsupported(const Bf16Arguments& a) {
  if (const std::string reason = warpgroup_products_missing(); !reason.empty()) return reason;
  if (const std::string reason = tile::tensor_core_unsupported(a); !reason.empty()) return reason;
  if (a.Dk > 128) return "Dk > 128: the state and its copy would not fit into a warpgroup's registers";
  return bulk_copies_unsupported(a);
}

std::int64_t warpgroup_chain_memory(const Bf16Arguments& a) {
  return prepared_tiles_memory(a);
}

}  // namespace tutorial::gated_delta_rule
