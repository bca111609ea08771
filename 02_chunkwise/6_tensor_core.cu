/// @file
/// Stage 6, `tensor_core`: the fused walk, its products on the matrix units.
///
/// Idea: a chunk's work is four matrix products, and a multiprocessor has units that do nothing else: one `mma`
/// instruction multiplies a 16 x 16 by a 16 x 8 matrix of bf16 and adds in fp32, at more than ten times the rate of
/// fp32 multiply-adds. Everything around them must then be as fast: a warp brings the operands of an mma from shared
/// memory in one or two `ldmatrix`, without bank conflicts (the picture is in swizzled_tile.cuh), and the state does
/// not go there at all (chunk_products.cuh says why it need not).
/// Mends: stage 5 is bound by fp32 arithmetic and by its operands' way through shared memory. Same: one kernel, a block
/// a (batch, head, tile of Dv), which walks the chunks; the state never leaves the chip.
///
///   P = (Q_n K_n^T) . M      O_n = scale (Q_n S + P V_n)      S += K_n^T V_n       for each chunk n
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16, states [B, H, Dk, Dv] fp32, in global memory. In shared memory
/// Q, K [64, Dk] and V [64, 64 or 128] and P [64, 64], bf16: 56 KB at Dk = Dv = 128. In registers S and O, fp32: 192 of
/// a thread's 255 at Dk = Dv = 128.
/// Work: block (x, h, b) takes the 64 or 128 columns from 64 x or 128 x on of v, o and S of head h of batch entry b;
/// 4 warps, which share these columns out; Q K^T is shared out by 16 x 16 tiles and passes through P. Rows past L and
/// columns past Dk and Dv are loaded as zeros and change nothing.
/// Precision: P and, for Q_n S, a copy of S are rounded to bf16, 2^-9 each; S itself and all sums stay in fp32.
/// Operations, a position: 4 Dk Dv for the state, 2 (C + 16) / 2 (Dk + Dv) for the scores on and below the diagonal, in
/// tiles of 16 (Q K^T once for each tile of Dv). Bytes: each input once (q and k once for each tile of Dv), each output
/// once.
/// Limit: latency. The block loads a chunk, waits, computes, and loads the next: the memory rests while the tensor
/// cores work, and they rest while it does.
/// Needs: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes.
/// Weakness: that waiting; stage 7 loads ahead.
/// Sources: PTX ISA, "mma.m16n8k16" and "ldmatrix"; arXiv 2312.06635, algorithm 1 (its version that materialises no
/// states); that an accumulator fits as the next product's operand is used in FlashAttention-2 (arXiv 2307.08691).

#include <cuda_runtime.h>

#include "02_chunkwise/chunk_products.cuh"
#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/spread.hpp"
#include "02_chunkwise/with_shape.cuh"
#include "common/device/launch.cuh"

namespace tutorial::linear_attention {
namespace {

template <class Shape>
constexpr std::size_t kSharedBytes = std::size_t(2 * Shape::kDk + Shape::kDv + kChunk) * kChunk * sizeof(__nv_bfloat16);

/// Loads the first `rows` rows and `columns` columns of a chunk into a tile; the rest of the tile becomes zeros.
template <int kColumns>
__device__ void load_tile(const SwizzledTile<kColumns>& tile, const __nv_bfloat16* first_row, std::int64_t stride_l,
                          int rows, int columns) {
  constexpr int kUnits = kColumns / 8;  // of 16 bytes, one a thread
#pragma unroll 4
  for (int i = int(threadIdx.x); i < kChunk * kUnits; i += kThreads) {
    const int row = i / kUnits, column = i % kUnits * 8;
    uint4 unit{};
    if (row < rows && column < columns) {
      unit = load_global(reinterpret_cast<const uint4*>(first_row + row * stride_l + column));
    }
    *reinterpret_cast<uint4*>(tile.data + tile.unit(row, column)) = unit;
  }
}

template <class Shape>
__global__ void __launch_bounds__(kThreads) tensor_core_kernel(HalfArguments a) {
  const int b = int(blockIdx.z), h = int(blockIdx.y);
  const int first_column = int(blockIdx.x) * Shape::kDv, columns = min(Shape::kDv, a.Dv - first_column);

  __nv_bfloat16* memory = dynamic_shared<__nv_bfloat16>();
  const typename Shape::KeyTile Q{memory}, K{Q.data + kChunk * Shape::kDk};
  const typename Shape::ValueTile V{K.data + kChunk * Shape::kDk};
  const typename Shape::ScoreTile P{V.data + kChunk * Shape::kDv};

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
    masked_scores<Shape>(P, Q, K, NothingElse());
    add_from_state<Shape>(O, Q, S);
    __syncthreads();
    add_from_scores<Shape>(O, P, V);
    update_state<Shape>(S, K, V);
    store_output<Shape>(a.o.row(b, h, t) + first_column, a.o.stride_l, rows, columns, O, V,
                        [&](int) { return a.scale; });
    __syncthreads();
  }
  if (a.final_state.data) {
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

}  // namespace

void tensor_core(const HalfArguments& a) {
  with_shape(a.Dk, block_columns(a), [&]<class Shape>(Shape) {
    launch(tensor_core_kernel<Shape>, {blocks<Shape>(a, 1), kThreads, kSharedBytes<Shape>}, a);
  });
}

}  // namespace tutorial::linear_attention
