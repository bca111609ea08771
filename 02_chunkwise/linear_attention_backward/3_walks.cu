/// @file
/// Stage 3, `walks`: S and its gradient stay on the chip, and each of the three gradients takes one walk over the
/// chunks.
///
/// Idea: dq is the operator on do, v and k, walked from the first chunk to the last. dk and dv are the operator on
/// other inputs, walked from the last chunk to the first (gradients.hpp). So the kernel is that of `tensor_core` with
/// the walk's direction as an argument. The direction sets the order of the chunks and which half of the scores counts.
/// Each walk computes S or dS itself, chunk by chunk.
/// Grows out of: 02_chunkwise/linear_attention/7_tensor_core.cu
/// Improves on: `chunkwise` has one thread per head.
/// Unchanged: the products of a chunk and their precision, and that nothing is stored between the walks.
/// Equation: with S' = dS / scale
///
///   dQ_n = scale (dO_n S^T + ((dO_n V_n^T) . M) K_n)      S^T  += V_n^T K_n      n = 0 ... N - 1
///   dK_n = scale (V_n S'^T + ((dO_n V_n^T) . M)^T Q_n)    S'^T += dO_n^T Q_n     n = N - 1 ... 0
///   dV_n = scale (K_n S'   + ((Q_n K_n^T) . M)^T dO_n)    S'   += Q_n^T dO_n     n = N - 1 ... 0
///
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16, states [B, H, Dk, Dv] fp32, in device memory.
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

#include <cstdint>

#include "02_chunkwise/linear_attention_backward.hpp"
#include "02_chunkwise/linear_attention_backward/gradients.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/pack.cuh"
#include "common/tile/chunk_shape.cuh"
#include "common/tile/chunk_tiles.cuh"
#include "common/tile/column_products.cuh"
#include "common/tile/load_tile_sync.cuh"
#include "common/tile/masked_scores.cuh"
#include "common/tile/state.cuh"
#include "common/tile/transposed_scores.cuh"

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

/// Computes one gradient. Grid (tiles of its columns, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads) gradient_walk_kernel(Gradient g) {
  const Bf16Arguments& a = g.a;
  const int b = int(blockIdx.z), h = int(blockIdx.y), warp = int(threadIdx.x) / 32;
  const int first_column = int(blockIdx.x) * kColumns, columns = min(kColumns, a.Dv - first_column);
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const auto [Q, K, V] = ChunkTiles<Shape>(memory);
  const typename Shape::ScoreTile P{memory + ChunkTiles<Shape>::kElements};
  const int column = warp * kWarpColumns;  // the warp's first

  typename Shape::State S;
  const StateStrides strides = g.strides(a.initial_state.stride_l);
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + first_column * strides.column : nullptr;
  load_state<Shape>(S, start, strides, a.Dk, columns);
  scale_state<Shape>(S, g.start_factor);
  const int N = (a.L - 1) / kChunk + 1;
  for (int n = 0; n < N; ++n) {
    const int t = (g.is_reversed ? N - 1 - n : n) * kChunk, rows = a.L - t;
    load_tile(Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_tile(K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_tile(V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
    __syncthreads();
    typename Shape::Output O = {};
    masked_scores<Shape>(P, g.is_reversed ? K : Q, g.is_reversed ? Q : K);
    add_from_state<Shape>(O, Q, S);
    __syncthreads();
    g.is_reversed ? add_from_transposed_scores<Shape>(O, P, V) : add_from_scores<Shape>(O, P, V);
    update_state<Shape>(S, K, V);
    for_each_pair(O, [&](int row, int j, float2 o) {
      auto* address = reinterpret_cast<std::uint32_t*>(a.o.row(b, h, t + row) + first_column + column + j);
      if (row < rows && column + j < columns) store_global(address, pack(a.scale * o.x, a.scale * o.y));
    });
    __syncthreads();
  }
  if (a.final_state.data) {
    scale_state<Shape>(S, a.scale);
    store_state<Shape>(a.final_state.row(b, h, 0) + first_column, S, a.final_state.stride_l, a.Dk, columns);
  }
}

template <int kDk>
void start(const Gradient& g) {
  const Bf16Arguments& a = g.a;
  const dim3 grid(unsigned(ceil_div(a.Dv, kColumns)), unsigned(a.H), unsigned(a.B));
  using Shape = ChunkShape<kDk, kColumns>;
  launch(gradient_walk_kernel<Shape>, {grid, kThreads, kSharedBytes<Shape>}, g);
}

}  // namespace

void walks_backward(const Bf16BackwardArguments& b) {
  for (const Gradient& g : gradients_of(b)) {
    g.a.Dk <= 64 ? start<64>(g) : g.a.Dk <= 128 ? start<128>(g) : start<256>(g);
  }
}

}  // namespace tutorial::linear_attention
