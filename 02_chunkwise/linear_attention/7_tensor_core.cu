/// @file
/// Stage 7, `tensor_core`: the operands of the tensor cores without padding, and only the scores that count.
///
/// Idea: everything around the tensor cores must be as fast as they are. Instead of being padded, the rows of a tile are
/// *swizzled*: the 16-byte units of each row are exchanged, so that ldmatrix has no bank conflicts, no memory is lost,
/// and a tile has rows without gaps (common/tile/swizzled_tile.cuh draws it). Of the scores, only the tiles of 16 x 16 on
/// and below the diagonal are computed, and the four warps divide these ten tiles evenly (common/tile/masked_scores.cuh).
/// So a warp loads a fragment of K once for 16 keys instead of once for 8.
/// Grows out of: 6_register_state.cu
/// Improves on: `register_state` computes 16 tiles of scores where 10 count, and loses 8 % of its tiles to padding.
/// Unchanged: one kernel. Each block has 64 columns of Dv of one head and walks the chunks. The state never leaves the
/// registers.
/// Equation:
///
///   P = (Q_n K_n^T) . M      O_n = scale (Q_n S + P V_n)      S += K_n^T V_n       for each chunk n
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16, states [B, H, Dk, Dv] fp32, in device memory. In shared memory
/// Q, K [64, Dk], V and P [64, 64], bf16. In registers S and O, fp32.
/// Thread mapping: block (x, h, b) takes the 64 columns from 64 x on of v, o and S of head h of batch entry b. Its 4 warps
/// divide the columns among them. They divide Q K^T by tiles of 16 x 16 and exchange it through P. Rows past L and
/// columns past Dk and Dv are loaded as zeros and change nothing.
/// Resources: 48 KB of shared memory at Dk = 128; there S and O take 96 of a thread's registers.
/// Precision: P and, for Q_n S, a copy of S are rounded to bf16, with a relative error of up to 2^-8 each. S itself and
/// all sums stay in fp32.
/// Work: per position 4 Dk Dv operations for the state and 2 (C + 16) / 2 (Dk ceil(Dv / 64) + Dv) for the scores on and
/// below the diagonal, in tiles of 16.
/// Bytes: each input once (q and k once for each tile of Dv), each output once.
/// Bound by: latency. The block loads a chunk, waits, computes, and loads the next: the memory is idle while the tensor
/// cores work, and the tensor cores are idle while the block loads.
/// Requires: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes.
/// Weakness: the block waits for each load. `pipelined` loads ahead.
/// Sources: PTX ISA, "mma.m16n8k16" and "ldmatrix"; arXiv 2312.06635, algorithm 1 (its version that materialises no
/// states).

#include <cuda_runtime.h>

#include <cstdint>

#include "02_chunkwise/linear_attention.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/column_products.cuh"
#include "common/tile/load_state.cuh"
#include "common/tile/load_tile_sync.cuh"
#include "common/tile/masked_scores.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

constexpr int kColumns = 64;  // of Dv, per block
constexpr int kWarpColumns = kColumns / kWarps;

/// Calls f(row, column, pair) for each pair of neighbouring numbers that the lane holds of D.
template <int kTiles, int kPairs, class F>
__device__ __forceinline__ void for_each_pair(const float (&D)[kTiles][kPairs][4], F f) {
  const int lane = int(lane_index());
#pragma unroll
  for (int m = 0; m < kTiles; ++m) {
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      f(m * 16 + lane / 4, n * 8 + lane % 4 * 2, float2{D[m][n][0], D[m][n][1]});
      f(m * 16 + lane / 4 + 8, n * 8 + lane % 4 * 2, float2{D[m][n][2], D[m][n][3]});
    }
  }
}

template <class Shape>
constexpr std::size_t kSharedBytes = ChunkTiles<Shape>::kBytes + kChunk* kChunk * sizeof(__nv_bfloat16);

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads) tensor_core_kernel(Bf16Arguments a) {
  const int b = int(blockIdx.z), h = int(blockIdx.y), warp = int(threadIdx.x) / 32;
  const int first_column = int(blockIdx.x) * kColumns, columns = min(kColumns, a.Dv - first_column);
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const auto [Q, K, V] = ChunkTiles<Shape>(memory);
  const typename Shape::ScoreTile P{memory + ChunkTiles<Shape>::kElements};
  const int column = warp * kWarpColumns;  // the warp's first

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);
  for (int t = 0; t < a.L; t += kChunk) {
    const int rows = a.L - t;
    load_tile(Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_tile(K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_tile(V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
    __syncthreads();
    typename Shape::Output O = {};
    masked_scores<Shape>(P, Q, K);
    add_from_state<Shape>(O, Q, S);
    __syncthreads();
    add_from_scores<Shape>(O, P, V);
    update_state<Shape>(S, K, V);
    for_each_pair(O, [&](int row, int j, float2 o) {
      auto* address = reinterpret_cast<std::uint32_t*>(a.o.row(b, h, t + row) + first_column + column + j);
      if (row < rows && column + j < columns) store_global(address, pack(a.scale * o.x, a.scale * o.y));
    });
    __syncthreads();
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

template <int kDk>
void start(const Bf16Arguments& a) {
  const dim3 grid(unsigned(ceil_div(a.Dv, kColumns)), unsigned(a.H), unsigned(a.B));
  using Shape = ChunkShape<kDk, kColumns>;
  launch(tensor_core_kernel<Shape>, {grid, kThreads, kSharedBytes<Shape>}, a);
}

}  // namespace

void tensor_core(const Bf16Arguments& a) {
  a.Dk <= 64 ? start<64>(a) : a.Dk <= 128 ? start<128>(a) : start<256>(a);
}

}  // namespace tutorial::linear_attention
