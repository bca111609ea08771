/// @file
/// `fused`: chapter 02's walk with three decays.
///
/// Idea: a scalar gate leaves q and k as they are, so there is nothing to prepare. Each score, each row of Q S, and
/// each row of V on its way into the state is multiplied by a decay. Chapter 02's kernel does the rest.
/// Grows out of: 02_chunkwise/linear_attention/8_pipelined.cu
/// Improves on: `chunkwise` has one CPU thread per head.
/// Unchanged: the kernel of `pipelined`, with one block per head and tile of Dv, its products and its loads.
/// scalar_gate.cuh has the decays and the sums from which they are computed.
/// Equation: with b_t, the sum of g / ln 2 from the first position of chunk n to t, and b_end at its last position,
///
///   P_ti = scale (q_t . k_i) 2^(b_t - b_i), i <= t
///   O_n  = scale diag(2^b) Q_n S + P V_n
///   S    = 2^b_end S + K_n^T (diag(2^(b_end - b)) V_n)
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32.
/// Thread mapping: as in `pipelined`. g is loaded one chunk ahead of the tiles. Every warp computes b of the next chunk
/// for itself, between the products of this chunk, and keeps its own copy of b in shared memory. So no warp waits for
/// the sums of another, and there are still two barriers per chunk.
/// Resources: 255 registers per thread, none spilled, and 107 KB of shared memory at Dk = Dv = 128: two blocks per
/// multiprocessor. The state takes 128 of the registers and the output 64, so there are two warps per scheduler.
/// Work: per position 4 Dk Dv + 80 (Dk + Dv) operations on tensor cores, and 90 exponentials per tile of Dv, because
/// each lane computes its own: (C + 16) / 2 for scores, 16 for rows of Q S, 34 for rows of V and the state.
/// Bytes: q, k and g once per tile of Dv (after the first tile from the second-level cache), v and o once.
/// Bound by: with few heads the walk over L / 64 dependent chunks.
/// Requires: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes; if Dk > 128, a GPU that gives a
/// block 160 KB of shared memory.
/// Weakness: there is only one block per head and tile of Dv, however long the sequence is, and the walk computes
/// scores and outputs in each chunk. `two_kernels` takes them out of the walk.
/// Sources: ThunderKittens, `linear_attention`; flash-linear-attention, `fused_chunk_simple_gla`.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "04_fused_chunk/simple_gla/walked_sums.cuh"
#include "common/device/launch.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kPipelineDepth = 2;  // chunks in shared memory

template <class Shape>
constexpr std::size_t kSharedBytes = kPipelineDepth* ChunkTiles<Shape>::kBytes +
                                     kChunk* kChunk * sizeof(__nv_bfloat16) + WalkedSums::kBytes;

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 2 : 1) fused_kernel(Bf16Arguments a) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const unsigned first_column = blockIdx.x * Shape::kDv;  // unsigned: as an offset it takes one register, not two
  const int columns = min(Shape::kDv, a.Dv - int(first_column));
  auto* memory = dynamic_shared<unsigned char>();
  const auto tiles_of = [&](int t) {
    return ChunkTiles<Shape>(memory + t / kChunk % kPipelineDepth * ChunkTiles<Shape>::kBytes);
  };
  const typename Shape::ScoreTile P{
      reinterpret_cast<__nv_bfloat16*>(memory + kPipelineDepth * ChunkTiles<Shape>::kBytes)};
  const WalkedSums walked{reinterpret_cast<float*>(P.data + kChunk * kChunk)};

  const auto load = [&](int t) {
    const ChunkTiles<Shape> tiles = tiles_of(t);
    const int rows = a.L - t, batch = hide_from_compiler(b);
    load_tile_async(tiles.Q, a.q.row(batch, h, t), a.q.stride_l, rows, a.Dk);
    load_tile_async(tiles.K, a.k.row(batch, h, t), a.k.stride_l, rows, a.Dk);
    load_tile_async(tiles.V, a.v.row(batch, h, t) + first_column, a.v.stride_l, rows, columns);
    load_g_async(walked.g_of(t + kChunk), a.g.row(batch, h, t + kChunk), a.g.stride_l, rows - kChunk);
    cp_async_commit();
  };
  load(0);
  walked.add_up(a, b, h, 0, a.L);

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);

  for (int t = 0; t < a.L; t += kChunk) {
    cp_async_wait<0>();
    __syncthreads();
    if (t + kChunk < a.L) load(t + kChunk);
    const ChunkTiles<Shape> tiles = tiles_of(t);
    const SharedSums sums = walked.sums_of(t);
    typename Shape::Output O = {};
    masked_scores<Shape>(P, tiles.Q, tiles.K, DecayedScores{sums, a.scale});
    add_from_state<Shape>(O, tiles.Q, S);
    decay_rows<Shape>(O, sums, a.scale);
    walked.add_up(t + kChunk);
    __syncthreads();
    add_from_scores<Shape>(O, P, tiles.V);
    update_state<Shape>(S, tiles.K, tiles.V, DecaysToEnd(sums));
    store_output<Shape>(a.o.row(hide_from_compiler(b), hide_from_compiler(h), t) + first_column, a.o.stride_l, a.L - t,
                        columns, O, tiles.V, 1.0f);
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void fused(const Bf16Arguments& a) {
  select_shape(a.Dk, block_columns(extents_of(a)), [&]<class Shape>(Shape) {
    launch(fused_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kThreads, kSharedBytes<Shape>}, a);
  });
}

}  // namespace tutorial::simple_gla
