/// @file
/// `two_kernels`: first the states of all chunks, then the outputs of all chunks at once.
///
/// Idea: only the states need a walk. A first kernel does nothing but this walk: it writes the state that each chunk
/// starts from to memory. It needs no queries, no scores and no outputs, and its tiles of the state can be small, so
/// that there are blocks for all multiprocessors. The second kernel has a block for each chunk and walks nothing.
/// Improves on: `fused` computes scores and outputs in its walk and has few blocks.
/// Unchanged: what is computed for a chunk.
/// Equation: with b_t = g_s / ln 2 + ... + g_t / ln 2 for the chunk n from position s to position e,
///
///   S_n  = 2^b_end S_{n-1} + K_n^T (diag(2^(b_end - b)) V_n)     states_kernel; S_{n-1} is left in memory, in bf16
///   P_ti = scale (q_t . k_i) 2^(b_t - b_i), i <= t               outputs_kernel
///   O_n  = scale diag(2^b) Q_n S_{n-1} + P V_n
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L], S_0 and final_state [B, H, Dk, Dv] fp32; states
/// [B, H, N, Dk, Dv] bf16 for the N = ceil(L / 64) chunks, in the order of the second kernel's fragments
/// (stored_states.cuh).
/// Thread mapping: in the first kernel block (tile, h, b) walks a 64 x 64 tile of the state, 32 registers per thread;
/// every warp computes b of the chunk for itself, and loads run two chunks ahead. In the second kernel block (chunk and
/// tile of Dv, h, b) has 64 positions and 64 or 128 columns of o; the state's fragments come straight from memory.
/// Resources at Dk = Dv = 128: 125 registers per thread and 49 KB of shared memory in the first kernel, 130 and 56 KB
/// in the second: four and three blocks per multiprocessor, as many warps per scheduler.
/// Work: per position 4 Dk Dv + 80 (Dk + Dv) operations on tensor cores; 6 exponentials per tile of the state, and 56
/// per tile of Dv: (C + 16) / 2 for scores, 16 for rows of Q S.
/// Bytes: q and o once, k and v twice, each for every tile that needs it; the states, 2 Dk Dv bytes per chunk, are
/// written and read. At Dk = Dv = 128 these are as many bytes as those of q, k, v and o together.
/// Bound by: the memory's bandwidth.
/// Requires: as `fused`, without its shared memory.
/// Weakness: the states of all chunks go through memory. `segments` moves one state per segment, not one per
/// chunk.
/// Sources: arXiv 2405.21060, section 6; flash-linear-attention, `chunk_simple_gla`.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/dispatch/decay_to_end.cuh"
#include "04_fused_chunk/simple_gla/scalar_gate.cuh"
#include "04_fused_chunk/simple_gla/stored_states.cuh"
#include "04_fused_chunk/simple_gla/walked_sums.cuh"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"
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

constexpr int kPipelineDepth = 3;  // chunks in shared memory, in the first kernel

/// A chunk's K, V and g.
template <class Shape>
constexpr int kBytesForStates = StateTiles<Shape>::kBytes + kChunk* int(sizeof(float));

/// The walk, for the states alone. Grid (tiles of Dk and Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads, 4) states_kernel(Bf16Arguments a, uint4* states) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), column_tiles = (a.Dv - 1) / Shape::kDv + 1;
  const int first_row = int(blockIdx.x) / column_tiles * Shape::kDk, rows_of_state = min(Shape::kDk, a.Dk - first_row);
  const int first_column = int(blockIdx.x) % column_tiles * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  auto* memory = dynamic_shared<unsigned char>();
  const auto memory_of = [&](int t) { return memory + t / kChunk % kPipelineDepth * kBytesForStates<Shape>; };
  const auto g_of = [&](int t) { return reinterpret_cast<float*>(memory_of(t) + StateTiles<Shape>::kBytes); };

  const auto load = [&](int t) {
    if (t < a.L) {
      const StateTiles<Shape> tiles(memory_of(t));
      const int rows = a.L - t;
      load_tile_async(tiles.K, a.k.row(b, h, t) + first_row, a.k.stride_l, rows, rows_of_state);
      load_tile_async(tiles.V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
      load_g_async(g_of(t), a.g.row(b, h, t), a.g.stride_l, rows);
    }
    cp_async_commit();  // near the end an empty group keeps the count right
  };
  load(0);
  load(kChunk);

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, first_row) + first_column : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, rows_of_state, columns);

  for (int t = 0; t < a.L; t += kChunk) {
    store_fragments<Shape>(StoredState(states, a, b * a.H + h, t / kChunk), S, first_row, first_column);
    cp_async_wait<1>();
    __syncthreads();
    load(t + 2 * kChunk);
    const StateTiles<Shape> tiles(memory_of(t));
    const DecayToEnd to_end(ChunkSums(g_of_lane(g_of(t))));
    update_state<Shape>(S, tiles.K, tiles.V, to_end);
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, first_row) + first_column, S, a.final_state.stride_l, rows_of_state,
                       columns);
  }
}

template <class Shape>
constexpr std::size_t kSharedBytes = ChunkTiles<Shape>::kBytes +
                                     kChunk* kChunk * sizeof(__nv_bfloat16) + SharedSums::kBytes;

/// The outputs of all chunks at once. Grid (tiles of Dv of all chunks, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads) outputs_kernel(Bf16Arguments a, uint4* states) {
  const BlockPart<Shape> part(extents_of(a), kChunk);
  const int b = part.b, h = part.h, t = part.begin, first_column = part.first_column, columns = part.columns;
  const int rows = a.L - t;
  auto* memory = dynamic_shared<unsigned char>();
  const ChunkTiles<Shape> tiles(memory);
  const typename Shape::ScoreTile P{reinterpret_cast<__nv_bfloat16*>(memory + ChunkTiles<Shape>::kBytes)};
  const SharedSums sums{reinterpret_cast<float*>(P.data + kChunk * kChunk)};

  load_tile_async(tiles.Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
  load_tile_async(tiles.K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
  load_tile_async(tiles.V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
  cp_async_commit();
  if (threadIdx.x < 32) sums.store(ChunkSums(load_g(a, b, h, t, a.L)));
  cp_async_wait<0>();
  __syncthreads();
  typename Shape::Output O = {};
  add_from_stored_state<Shape>(O, tiles.Q, StoredState(states, a, part.head, part.segment), first_column);
  decay_rows<Shape>(O, sums, a.scale);
  masked_scores<Shape>(P, tiles.Q, tiles.K, DecayedScores{sums, a.scale});
  __syncthreads();
  add_from_scores<Shape>(O, P, tiles.V);
  store_output<Shape>(a.o.row(b, h, t) + first_column, a.o.stride_l, rows, columns, O, tiles.V, 1.0f);
}

}  // namespace

void two_kernels(const Bf16Arguments& a) {
  auto* states = workspace<uint4>("simple_gla: chunk states", std::size_t(two_kernels_memory(a)) / sizeof(uint4));
  using Quarter = ChunkShape<64, 64>;
  launch(states_kernel<Quarter>,
         {grid_of<Quarter>(extents_of(a), ceil_div(a.Dk, Quarter::kDk)), kThreads,
          kPipelineDepth * kBytesForStates<Quarter>},
         a, states);
  end_part("states");
  select_shape(a.Dk, widest_tile(extents_of(a)), [&]<class Shape>(Shape) {
    const dim3 grid = grid_of<Shape>(extents_of(a), ceil_div(a.L, kChunk));
    launch(outputs_kernel<Shape>, {grid, kThreads, kSharedBytes<Shape>}, a, states);
  });
  end_part("outputs");
}

}  // namespace tutorial::simple_gla
