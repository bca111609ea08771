/// @file
/// `specialized`: preparing warps beside a warpgroup that walks, and a barrier for each set of tiles.
///
/// Idea: `one_kernel` is bound by instructions: per chunk and scheduler its walking warps execute 2300 beside the 5000
/// of its preparing warps, and both kinds meet at a barrier for each chunk. Chapter 03's `warpgroup_walk` has a walk of
/// a few instructions, on products of warpgroups, and it does not care what fills its tiles. There it is bulk copies of
/// what another kernel has left in memory. Here it is the block's other warps: a set of tiles is full when they have
/// arrived at its barrier.
///
///     loads (1 thread)         V -----------------> walking warpgroup (64 columns of Dv)
///     preparing warps (8)      q~, k~, D, P ------> the same, chunk by chunk
///     stores (3 warps)         O <----------------- the same
///
/// Grows out of: 03_gla/gla/9_warpgroup_walk.cu
/// Improves on: in `one_kernel` the two kinds of warps compete for the schedulers and meet at one barrier per chunk.
/// `warpgroup_walk` reads from memory what another kernel has written.
/// Unchanged: the products of `warpgroup_walk`; what the preparing warps of `one_kernel` compute, from
/// rows that are loaded 8 ahead. As there, P is the sum of two parts, each rounded to bf16, one for each half of Dk.
/// Equation: as `one_kernel`.
/// Shapes: as `one_kernel`. In shared memory two chunks of q~, k~ [64, 128], V, two parts of P [64, 64] in bf16 and D [4,
/// 128] in fp32, and two O.
/// Thread mapping: block (tile, h, b) has 64 columns of Dv. Warpgroup 0 loads V and stores O. Of the next two, each warp
/// prepares one sub-chunk of each chunk, for one half of Dk, two columns per lane. The last warpgroup walks.
/// Order: a sub-chunk's outputs are started first, and the update of S is queued behind them. So one rounded copy of S
/// suffices, the loop over sub-chunks is not unrolled, and registers are left for the warps that prepare.
/// Synchronization: a phase of `full` ends when the bytes of V have come and the eight preparing warps have arrived.
/// These wait for the walk to be done with a set of tiles (`empty`) before they write to it. Otherwise as
/// `warpgroup_walk`.
/// Fences: q~, k~ and P are written by ordinary stores and read by products. Each lane fences them before its warp
/// arrives.
/// Resources: registers per thread of the four warpgroups: 80 for loads and stores, 144 for each of the others, together
/// 512. 132 KB of shared memory.
/// Work: the walk as `warpgroup_walk`, and one more product for the second part of P; per sub-chunk and column of Dk 136
/// pairs in fp32, as `one_kernel`.
/// Bytes: q, k and g once per 64 columns of Dv, v and o once. No workspace.
/// Bound by: the instructions of the preparing warps.
/// Requires: compute capability 9.0, Dk <= 128, what `one_kernel` requires, and a v that bulk copies support.
/// Weakness: the pairs. Their terms are added up over a warp's lanes. `score_levels` makes products of them.
/// Sources: FlashAttention-3 (arXiv 2407.08608) for warpgroups with different tasks.

#include <cuda_runtime.h>

#include "04_fused_chunk/fused_gla.hpp"
#include "04_fused_chunk/gla/launch_plan.hpp"
#include "common/device/launch.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/bulk_tiles.cuh"
#include "common/tile/decay_sub_chunk.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/warpgroup_sub_chunk.cuh"

namespace tutorial::fused_gla {
namespace {

using namespace tile;

constexpr int kDk = 128;                        // rows of S, at most
constexpr int kPipelineDepth = 2;               // chunks in shared memory
constexpr int kDepth = 2;                       // O in shared memory
constexpr int kBlock = 4 * kWarpgroup;          // threads
constexpr int kStoreThreads = kWarpgroup - 32;  // of them

/// The tiles of one chunk.
struct Tiles {
  PanelTile<kDk> Q, K;
  PanelTile<64> V;
  float* decays;  ///< [kSubChunks, kDk]

  static constexpr int kBytes = (4 * kDk + 6 * 64) * kChunk + 4 * kSubChunks * kDk;

  /// @param memory kBytes in shared memory, aligned to 1024
  __device__ __forceinline__ explicit Tiles(unsigned char* memory)
      : Q{reinterpret_cast<__nv_bfloat16*>(memory)},
        K{Q.data + kChunk * kDk},
        V{K.data + kChunk * kDk},
        decays(reinterpret_cast<float*>(V.data + 3 * V.kPanelElements)) {}

  /// P of a half of Dk, 0 or 1: P_ti of a sub-chunk in row i, of 16 columns t.
  __device__ __forceinline__ PanelTile<64> P(int half) const { return {V.data + (1 + half) * V.kPanelElements}; }
  /// The decays of sub-chunk r for the rows of S that the calling thread has.
  __device__ __forceinline__ void load_decays(StateDecays<kDk>& two, int r) const {
    const float* first = decays + r * kDk + lane_index() % 4 * 2;
#pragma unroll
    for (int d = 0; d < kDk; d += 8) two[d / 8] = *reinterpret_cast<const float2*>(first + d);
  }
};

constexpr int kBytes = kPipelineDepth * Tiles::kBytes + kDepth * int(PanelTile<64>::kPanelBytes);

/// Where a lane stores the results of decay_sub_chunk(): its two columns of a sub-chunk.
struct ToTiles {
  const Tiles& tiles;
  int sub_chunk, d;  ///< the first column is d

  __device__ __forceinline__ void put(const PanelTile<kDk>& to, int row, const float (&x)[2]) const {
    const int unit = to.unit(sub_chunk * kSubChunk + row, d / 8 * 8);
    store_for_copies(reinterpret_cast<std::uint32_t*>(to.data + unit + d % 8), packed_row(x));
  }
  /// q_t, decayed from the sub-chunk's start.
  __device__ __forceinline__ void query(int t, const float (&x)[2]) const { put(tiles.Q, t, x); }
  /// k_i, decayed to its end.
  __device__ __forceinline__ void key(int i, const float (&x)[2]) const { put(tiles.K, i, x); }
  /// The decay of the whole sub-chunk.
  __device__ __forceinline__ void decay(const float (&x)[2]) const {
    *reinterpret_cast<float2*>(tiles.decays + sub_chunk * kDk + d) = float_row(x);
  }
};

/// The preparing warps, as those of `one_kernel`, but each waits for the walk alone.
template <class TilesOf>
__device__ __forceinline__ void prepare_chunks(const Bf16Arguments& a, int b, int h, const TilesOf& tiles_of,
                                               Barrier* full, Barrier* empty) {
  const int warp = int(threadIdx.x) / 32 - 4, sub_chunk = warp % kSubChunks, lane = int(lane_index());
  const int d = (warp / kSubChunks * 32 + lane) * 2, first = sub_chunk * kSubChunk;
  const auto load = [&](int t, int row) {
    const int position = t + first + (row < kSubChunk ? row : row - kSubChunk + kChunk);
    return load_row<2>(a, b, h, position, d);
  };
  Row<2> ahead[kAhead];
#pragma unroll
  for (int row = 0; row < kAhead; ++row) ahead[row] = load(0, row);
  auto ring = Ring<kPipelineDepth>::producer();
  for (int t = 0; t < a.L; t += kChunk) {
    const Tiles tiles = tiles_of(ring.stage());
    const PanelTile<64> P = tiles.P(warp / kSubChunks);
    float scores[8] = {};
    ring.wait(empty);  // the walk has read this set
    decay_sub_chunk<2>(
        ahead, a.L - first - t, d < a.Dk, [&](int row) { return load(t, row); }, ToTiles{tiles, sub_chunk, d}, scores);
    const int unit = P.unit(first + lane / 2, lane % 2 * 8);
    store_for_copies(reinterpret_cast<uint4*>(P.data + unit), packed_scores(scores));
    fence_async_proxy();  // for wgmma
    __syncwarp();
    if (lane == 0) full[ring.stage()].arrive();
    ring.advance();
  }
}

/// Grid (tiles of 64 columns of Dv, H, B).
__global__ void __launch_bounds__(kBlock, 1) specialized_kernel(Bf16Arguments a, const __grid_constant__ TensorMap v) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), first_column = int(blockIdx.x) * 64;
  __shared__ Barrier full[kPipelineDepth], empty[kPipelineDepth], output_full[kDepth], output_empty[kDepth];
  auto* memory = dynamic_shared<unsigned char, kTileAlignment>();
  const auto tiles_of = [&](int stage) { return Tiles(memory + stage * Tiles::kBytes); };
  const auto output_of = [&](int stage) {
    return PanelTile<64>{reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * Tiles::kBytes +
                                                          stage * int(PanelTile<64>::kPanelBytes))};
  };

  if (threadIdx.x == 0) {
    for (Barrier& barrier : full) barrier.init(1 + 2 * kSubChunks);  // the bytes of V, and the warps that prepare
    for (Barrier& barrier : empty) barrier.init(4);
    for (Barrier& barrier : output_full) barrier.init(4);
    for (Barrier& barrier : output_empty) barrier.init(3);
    fence_barrier_init();
  }
  __syncthreads();

  const int group = int(threadIdx.x) / kWarpgroup, thread = int(threadIdx.x) % kWarpgroup;
  if (group == 0) {
    decrease_registers<80>();
    if (thread == 0) {
      auto ring = Ring<kPipelineDepth>::producer();
      for (int t = 0; t < a.L; t += kChunk) {
        ring.wait(empty);
        full[ring.stage()].arrive_expect(PanelTile<64>::kPanelBytes);
        load_panels(tiles_of(ring.stage()).V, v, full[ring.stage()],
                    {.column = first_column, .position = t, .head = h, .batch = b});
        ring.advance();
      }
    } else if (thread >= 32) {
      auto output_ring = Ring<kDepth>::consumer();
      for (int t = 0; t < a.L; t += kChunk) {
        output_ring.wait(output_full);
        store_tile_by<kStoreThreads>(thread - 32, a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t,
                                     a.Dv - first_column, output_of(output_ring.stage()), [&] {
                                       __syncwarp();
                                       if (lane_index() == 0) output_empty[output_ring.stage()].arrive();
                                     });
        output_ring.advance();
      }
    }
  } else if (group < 3) {
    increase_registers<144>();
    prepare_chunks(a, b, h, tiles_of, full, empty);
  } else {
    increase_registers<144>();
    WarpgroupState<kDk> S;
    const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
    load_group_state<kDk>(S, start, a.initial_state.stride_l, a.Dk, a.Dv - first_column);
    auto ring = Ring<kPipelineDepth>::consumer();
    auto output_ring = Ring<kDepth>::producer();
    for (int t = 0; t < a.L; t += kChunk) {
      const Tiles tiles = tiles_of(ring.stage());
      const PanelTile<64> output = output_of(output_ring.stage());
      RoundedState<kDk> s;
      StateDecays<kDk> decays;
      SubChunkOutput O;
      output_ring.wait(output_empty);
      ring.wait(full);
#pragma unroll 1
      for (int r = 0; r < kSubChunks; ++r) {
        const int row = r * kSubChunk;
        const auto v = k_from_row_to_row(tiles.V).along_k(row);
        tiles.load_decays(decays, r);
        round_state<kDk>(s, S);
        decay_state<kDk>(S, decays);
        wgmma_fence(O, s, S);
        start_sub_chunk_output<kDk>(O, s, k_along_rows(tiles.Q).along_mn(row));
        for (const PanelTile<64>& P : {tiles.P(0), tiles.P(1)}) {
          start_sub_chunk_output(O, v, k_from_row_to_row(P).along_k(row));
        }
        wgmma_commit();
        start_sub_chunk_update<kDk>(S, v, k_from_row_to_row(tiles.K).along_k(row));
        wgmma_commit();
        wgmma_wait<1>(O, s);
        put_sub_chunk_output(output, O, row, a.scale);
        wgmma_wait<0>(S);
      }
      __syncwarp();  // all lanes have read the decays
      if (lane_index() == 0) empty[ring.stage()].arrive();
      ring.advance();
      if (lane_index() == 0) output_full[output_ring.stage()].arrive();
      output_ring.advance();
    }
    if (a.final_state.data) {
      store_group_state<kDk>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk,
                             a.Dv - first_column);
    }
  }
}

}  // namespace

void specialized(const Bf16Arguments& a) {
  launch(specialized_kernel, {grid_of<PanelShape<kDk, 64>>(extents_of(a), 1), kBlock, std::size_t(kBytes)}, a,
         tile_map(a.v, tensor_sizes(a, a.Dv), kChunk));
}

}  // namespace tutorial::fused_gla
