/// @file
/// Stage 3, `walks`: S and its gradient stay on the chip, and each of the three gradients takes one walk over the
/// chunks.
///
/// Idea: dq is the operator on do, v and k, walked from the first chunk to the last. dk and dv are the operator on
/// other inputs, walked from the last chunk to the first (gradients.hpp). So the kernel is that of `tensor_core` with
/// the walk's direction as an argument. The direction sets the order of the chunks and which half of the scores counts.
/// Each walk computes S or dS itself, chunk by chunk.
/// Grows out of: 02_chunkwise/linear_attention/5_tensor_core.cu
/// Improves on: `chunkwise` has one thread per head.
/// Unchanged: the products of a chunk and their precision, and that nothing is stored between the walks.
/// Equation: with S' = dS / scale
///
///   dQ_n = scale (dO_n S^T + ((dO_n V_n^T) . M) K_n)      S^T  += V_n^T K_n      n = 0 ... N - 1
///   dK_n = scale (V_n S'^T + ((dO_n V_n^T) . M)^T Q_n)    S'^T += dO_n^T Q_n     n = N - 1 ... 0
///   dV_n = scale (K_n S'   + ((Q_n K_n^T) . M)^T dO_n)    S'   += Q_n^T dO_n     n = N - 1 ... 0
///
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16, states [B, H, Dk, Dv] fp32, in global memory.
/// Shared memory holds three tiles of a chunk and P, registers hold S and O.
/// Thread mapping: block (x, h, b) takes 64 columns of one gradient of head h of batch entry b; its four warps divide
/// them among them.
/// Resources: 48 KB of shared memory at Dk = Dv = 128, 96 of a thread's registers for S and O.
/// Work: as three calls of `tensor_core`: per position 12 Dk Dv operations, of which dk and dv do 2 Dk Dv twice.
/// Bytes: q, k and v twice, do three times, each gradient once. The tensors that are Q or K of a walk are read once
/// more for each further tile of columns, mostly from the second-level cache.
/// Bound by: latency, as `tensor_core`. There are three times as many blocks.
/// Requires: Dk and Dv multiples of 16, up to 256; rows aligned to 16 bytes.
/// Weakness: a block loads, waits and computes, and there is only one block per head and 64 columns, however long the
/// sequence is. The kernels behind `dispatch` mend both.
/// Sources: arXiv 2312.06635, algorithm 1 without materialization. fast-transformers' causal_dot_product has the
/// direction of its walk as a template parameter.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention_backward.hpp"
#include "02_chunkwise/linear_attention_backward/gradients.hpp"
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

/// Computes one gradient. Grid (tiles of its columns, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads) gradient_walk_kernel(Gradient g) {
  const Bf16Arguments& a = g.a;
  const int b = int(blockIdx.z), h = int(blockIdx.y), N = (a.L - 1) / kChunk + 1;
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
  const StateStrides strides = g.strides(a.initial_state.stride_l);
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column * strides.column : nullptr;
  load_state<Shape>(S, start, strides, a.Dk, columns);
  scale_state<Shape>(S, g.start_factor);

  for (int i = 0; i < N; ++i) {
    const int t = (g.is_reversed ? N - 1 - i : i) * kChunk;
    load(t);
    __syncthreads();
    typename Shape::Output O = {};
    masked_scores<Shape>(P, g.is_reversed ? tiles.K : tiles.Q, g.is_reversed ? tiles.Q : tiles.K);
    add_from_state<Shape>(O, tiles.Q, S);
    __syncthreads();
    g.is_reversed ? add_from_transposed_scores<Shape>(O, P, tiles.V) : add_from_scores<Shape>(O, P, tiles.V);
    update_state<Shape>(S, tiles.K, tiles.V);
    store_output<Shape>(a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns, O, tiles.V, a.scale);
    __syncthreads();
  }
  if (a.final_state.data) {
    scale_state<Shape>(S, a.scale);
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

template <class Shape>
constexpr std::size_t kSharedBytes = ChunkTiles<Shape>::kBytes + kChunk* kChunk * sizeof(__nv_bfloat16);

}  // namespace

void walks_backward(const Bf16BackwardArguments& b) {
  for (const Gradient& gradient : gradients_of(b)) {
    select_shape(gradient.a.Dk, 64, [&]<class Shape>(Shape) {
      launch(gradient_walk_kernel<Shape>, {grid_of<Shape>(extents_of(gradient.a), 1), kThreads, kSharedBytes<Shape>},
             gradient);
    });
  }
}

}  // namespace tutorial::linear_attention
