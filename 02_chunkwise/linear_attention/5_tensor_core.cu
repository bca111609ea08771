/// @file
/// Stage 5, `tensor_core`: the walk of `fused` with its products on tensor cores.
///
/// Idea: a chunk's work is four matrix products, and a multiprocessor has units that do nothing else, the tensor cores.
/// One `mma` instruction multiplies a 16 x 16 by a 16 x 8 matrix of bf16 and adds in fp32, at more than ten times the
/// rate of fp32 multiply-adds. Everything around these units must then be as fast. A warp brings the operands of an mma
/// from shared memory in one or two `ldmatrix`, without bank conflicts (common/tile/swizzled_tile.cuh draws it). The
/// state is not in shared memory at all (common/tile/chunk_products.cuh says why it need not be).
/// Grows out of: 4_fused.cu
/// Improves on: `fused` is bound by fp32 arithmetic and by the traffic of its operands through shared memory.
/// Unchanged: one kernel. Each block has one tile of Dv of one head and walks the chunks. The state never leaves the
/// chip.
/// Equation:
///
///   P = (Q_n K_n^T) . M      O_n = scale (Q_n S + P V_n)      S += K_n^T V_n       for each chunk n
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16, states [B, H, Dk, Dv] fp32, in global memory. In shared memory
/// Q, K [64, Dk], V [64, 64 or 128] and P [64, 64], bf16. In registers S and O, fp32.
/// Thread mapping: block (x, h, b) takes the 64 or 128 columns from 64 x or 128 x on of v, o and S of head h of batch
/// entry b. Its 4 warps divide the columns among them. They divide Q K^T by tiles of 16 x 16 and exchange it through P.
/// Rows past L and columns past Dk and Dv are loaded as zeros and change nothing.
/// Resources: 56 KB of shared memory at Dk = Dv = 128; there S and O take 192 of a thread's 255 registers.
/// Precision: P and, for Q_n S, a copy of S are rounded to bf16, with a relative error of up to 2^-9 each. S itself and
/// all sums stay in fp32.
/// Work: per position 4 Dk Dv operations for the state and 2 (C + 16) / 2 (Dk + Dv) for the scores on and below the
/// diagonal, in tiles of 16. Q K^T is computed once for each tile of Dv.
/// Bytes: each input once (q and k once for each tile of Dv), each output once.
/// Bound by: latency. The block loads a chunk, waits, computes, and loads the next: the memory is idle while the tensor
/// cores work, and the tensor cores are idle while the block loads.
/// Requires: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes.
/// Weakness: the block waits for each load. `pipelined` loads ahead.
/// Sources: PTX ISA, "mma.m16n8k16" and "ldmatrix"; arXiv 2312.06635, algorithm 1 (its version that materialises no
/// states). FlashAttention-2 (arXiv 2307.08691) uses the fact that an accumulator fits as an operand of the next
/// product.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/tile/block_part.cuh"
#include "common/tile/chunk_products.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/select_shape.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"

namespace tutorial::linear_attention {
namespace {

using namespace tile;

template <class Shape>
constexpr std::size_t kSharedBytes = ChunkTiles<Shape>::kBytes + kChunk* kChunk * sizeof(__nv_bfloat16);

/// Grid (tiles of Dv, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads) tensor_core_kernel(Bf16Arguments a) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const ChunkTiles<Shape> tiles(memory);
  const typename Shape::ScoreTile P{memory + ChunkTiles<Shape>::kElements};

  const auto load = [&](int t) {
    const int rows = a.L - t;
    load_tile(tiles.Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_tile(tiles.K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_tile(tiles.V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
  };

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);

  for (int t = 0; t < a.L; t += kChunk) {
    load(t);
    __syncthreads();
    typename Shape::Output O = {};
    masked_scores<Shape>(P, tiles.Q, tiles.K);
    add_from_state<Shape>(O, tiles.Q, S);
    __syncthreads();
    add_from_scores<Shape>(O, P, tiles.V);
    update_state<Shape>(S, tiles.K, tiles.V);
    store_output<Shape>(a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns, O, tiles.V, a.scale);
    __syncthreads();
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void tensor_core(const Bf16Arguments& a) {
  select_shape(a.Dk, block_columns(extents_of(a)), [&]<class Shape>(Shape) {
    launch(tensor_core_kernel<Shape>, {grid_of<Shape>(extents_of(a), 1), kThreads, kSharedBytes<Shape>}, a);
  });
}

}  // namespace tutorial::linear_attention
