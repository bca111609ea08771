/// @file
/// `materialized` of --backward: the states of all chunks go to memory, and then all chunks are computed at once.
///
/// Idea: only the states depend on the chunks before. A first kernel walks the chunks and does nothing else: it updates
/// S from the first chunk on and, in other blocks at the same time, dS from the last chunk, and stores both in bf16 at
/// each border of two chunks. That is as precise as what `subchunk_walks` multiplies, which is a bf16 copy, too. A
/// second kernel has one block per chunk. Each warp takes one sub-chunk. What it needs of the other sub-chunks of the
/// chunk it gets from products with them. The gates of dq and dk belong to the columns of the result, so the warp
/// multiplies its sums by the decay of a sub-chunk before it adds what lies on the near side of it. As all that the
/// gradients consist of is in one block, A and B of `subchunk_walks` never reach device memory. That kernel is in
/// gradients_of_chunks.cu, because `warpgroup_states` has it, too.
/// Grows out of: 3_chunkwise.cpp; port to the GPU: all chunks at once need the states of all of them
/// Improves on: a block of `subchunk_walks` does all work of 64 columns of a head, chunk by chunk, three times.
/// Unchanged: prepare(), and pairs within a sub-chunk in fp32, as in `subchunk_walks`, though in another order (Pairs).
/// Equation: q~, k~, D, P as in prepared.hpp; e, f, R as in `subchunk_walks`; S_n and S'_n = dS / scale are the states
/// after n chunks. r, s count the sub-chunks of chunk n; D_{r..s} is the product D_r ... D_s, or 1 if s < r
///
///   S_{n+1} = diag(D_3) (... diag(D_0) S_n + k~_0^T V_0 ...) + k~_3^T V_3        states_kernel
///   S'_n    = diag(D_0) (... diag(D_3) S'_{n+1} + q~_3^T dO_3 ...) + q~_0^T dO_0  the same, from the last chunk
///   A_r  = D_{0..r-1} . dO_r S_n^T    + sum over s < r of D_{s+1..r-1} . R_rs k~_s         gradients_kernel
///   B_r  = D_{r+1..3} . V_r S'_{n+1}^T + sum over s > r of D_{r+1..s-1} . R_sr^T q~_s
///   dV_r = scale ((D_{r+1..3} . k~_r) S'_{n+1} + P_rr^T dO_r + sum over s > r of P_sr^T dO_s)
///          P_sr = q~_s (D_{r+1..s-1} . k~_r)^T
///   W_n  = scale * sums of the rows of S_{n+1} . S'_{n+1}
///   dq, dk, dg from A, B and W as in `subchunk_walks`; S_N lacks the last key there, too
///
/// Shapes: as `subchunk_walks`. In device memory S and S' [B, H, N + 1, Dv / 8, Dk / 8, 8, 8] bf16, tiles of S^T whose
/// rows are 16 bytes, so that an accumulator's tile is one store of 128 bytes and ldmatrix reads it either way; and
/// what prepare() leaves.
/// Thread mapping: block (direction and tile, h, b) of states_kernel has 64 rows and 64 columns of S. Its 4 warps share
/// the columns: no element of S needs another one. Block (n, h, b) of gradients_kernel has chunk n. Each of its warps
/// has one sub-chunk with all columns; in the part with the pairs a lane has two columns.
/// Resources: gradients_kernel: 107 KB of shared memory at Dk = Dv = 128, two blocks per multiprocessor. S' and then S
/// lie in the same place, and at last A and B in the place of all tiles.
/// Work: on tensor cores per position 10 Dk Dv operations, and 2 (3 Dk + 2 Dv) for each of 40 pairs.
/// Bytes: prepare()'s; q~, k~, v and do twice, and 8 Dk Dv per chunk written and read; q, k, g and the gradients once.
/// Bound by: in gradients_kernel, waits that eight warps per multiprocessor cannot hide.
/// Requires: as `subchunk_walks`, with Dk and Dv up to 128, and a GPU that gives a block 107 KB of shared memory.
/// Weakness: the states, q~ and k~ cross device memory.
/// Sources: arXiv 2312.06635, sections 3.3 (materialization) and 4.3, and appendix.

#include <cuda_runtime.h>

#include "03_gla/gla/prepared_tiles.cuh"
#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/gradients_of_chunks.hpp"
#include "common/ceil_div.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/tile/decayed_tiles.cuh"
#include "common/tile/state.cuh"
#include "common/tile/walk_sub_chunk.cuh"

namespace tutorial::gla {
namespace {

using namespace tile;

constexpr int kWidth = 64;  // rows and columns of a state in a block of states_kernel
using Walk = ChunkShape<kWidth, kWidth>;
constexpr int kPipelineDepth = 3;  // chunks in shared memory

/// Writes the warp's columns of S in bf16.
/// @param state the tile of the block's first column and row
/// @param rows,columns of the block that exist
__device__ __forceinline__ void store_tiles(__nv_bfloat16* state, const Walk::State& S, int Dk, int rows, int columns) {
  static_assert(Walk::kWarpColumns == 16);
  const int warp_column = warp_index() * 16;
  if (warp_column >= columns) return;
  auto* to = reinterpret_cast<std::uint32_t*>(state + warp_column * Dk) + fresh_lane();
#pragma unroll
  for (int d = 0; d < Walk::kDk / 8; ++d) {
    if (d < rows / 8) {
      store_global(to + d * 32, pack(S[0][d][0], S[0][d][1]));
      store_global(to + Dk / 8 * 32 + d * 32, pack(S[0][d][2], S[0][d][3]));
    }
  }
}

/// S at all borders, and S' from the last. Grid (2 x tiles of Dv x tiles of Dk, H, B): the second half is for S'.
__global__ void __launch_bounds__(kThreads, 4) states_kernel(Bf16BackwardArguments a, Between between) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), N = between.prepared.N, blocks = int(gridDim.x) / 2;
  const bool is_from_end = int(blockIdx.x) >= blocks;
  const int tile = int(blockIdx.x) % blocks, row_tiles = (a.Dk - 1) / kWidth + 1;
  const int first_row = tile % row_tiles * kWidth, rows = min(kWidth, a.Dk - first_row);
  const int first_column = tile / row_tiles * kWidth, columns = min(kWidth, a.Dv - first_column);
  const std::int64_t head = std::int64_t(b) * a.H + h, size = std::int64_t(a.Dk) * a.Dv;
  const __nv_bfloat16* keys = is_from_end ? between.prepared.q : between.prepared.k;
  const View<const __nv_bfloat16>& values = is_from_end ? a.d_o : a.v;
  const View<const float>& start = is_from_end ? a.dfinal_state : a.initial_state;
  __nv_bfloat16* states =
      (is_from_end ? between.dS : between.S) + head * (N + 1) * size + first_column * a.Dk + first_row * 8;

  const auto tiles_of = [&](int i) {
    return DecayedTiles<Walk>(dynamic_shared<unsigned char>() +
                              i % kPipelineDepth * DecayedTiles<Walk>::kBytesForStates);
  };
  const auto load = [&](int i) {
    if (i < N) {
      const DecayedTiles<Walk> to = tiles_of(i);
      const int n = is_from_end ? N - 1 - i : i, t = n * kChunk;
      const std::int64_t chunk = head * N + n;
      // S_N is for dg_L alone: without the last key, whose part of the final state has passed no gate.
      const int positions = is_from_end ? kChunk : a.L - 1 - t;
      load_tile_async(to.K, keys + chunk * kChunk * a.Dk + first_row, a.Dk, positions, rows);
      load_tile_async(to.V, values.row(b, h, t) + first_column, values.stride_l, a.L - t, columns);
      load_decays_async<kWidth>(to.decays, between.prepared, chunk, first_row, a.Dk);
    }
    cp_async_commit();  // near the end an empty group keeps the count right
  };
  let_next_kernel_start();
  load(0);
  load(1);
  Walk::State S;
  load_state<Walk>(S, start.data ? start.row(b, h, first_row) + first_column : nullptr, start.stride_l, rows, columns);
  if (is_from_end) scale_state<Walk>(S, 1 / a.scale);
  store_tiles(states + (is_from_end ? N * size : 0), S, a.Dk, rows, columns);
  for (int i = 0; i < N; ++i) {
    cp_async_wait<1>();
    __syncthreads();
    load(i + 2);
    const DecayedTiles<Walk> from = tiles_of(i);
    float O[Walk::kWarpColumns / 8][4];  // unused
#pragma unroll 1
    for (int step = 0; step < kSubChunks; ++step) {
      walk_sub_chunk<Walk, false>(S, O, from, (is_from_end ? kSubChunks - 1 - step : step) * kSubChunk);
    }
    store_tiles(states + (is_from_end ? N - 1 - i : i + 1) * size, S, a.Dk, rows, columns);
  }
  if (is_from_end && a.dinitial_state.data) {
    scale_state<Walk>(S, a.scale);
    store_state<Walk>(a.dinitial_state.row(b, h, first_row) + first_column, S, a.dinitial_state.stride_l, rows,
                      columns);
  }
}

}  // namespace

void materialized_backward(const Bf16BackwardArguments& a) {
  const Between between = prepare_gradients(a);
  const int blocks = 2 * ceil_div(a.Dv, kWidth) * ceil_div(a.Dk, kWidth);
  launch(states_kernel,
         {dim3(unsigned(blocks), unsigned(a.H), unsigned(a.B)), kThreads,
          kPipelineDepth * std::size_t(DecayedTiles<Walk>::kBytesForStates)},
         a, between);
  compute_gradients(a, between);
}

std::string materialized_backward_unsupported(const Bf16BackwardArguments& a) {
  return gradients_unsupported(a);
}

std::int64_t materialized_backward_memory(const Bf16BackwardArguments& a) {
  return between_memory(a);
}

}  // namespace tutorial::gla
