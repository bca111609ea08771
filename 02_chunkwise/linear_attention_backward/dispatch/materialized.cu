/// @file
/// `materialized`: all chunks at once on tensor cores, with their states and the states' gradients in device
/// memory.
///
/// Idea: as in `materialized` of the operator, only running sums tie a chunk to the others: S from the beginning and dS
/// from the end. With both in memory, the gradients of all chunks can be computed at once. Moreover, each of the three
/// gradients is the operator itself on other inputs (gradients.hpp), with its mask or with the mask transposed. So one
/// kernel computes all three. Its products are those of a chunk in `tensor_core`.
/// Improves on: `chunkwise` has one thread per head and walks the chunks of a head one after the other.
/// Unchanged: the equations. C is 64.
/// Equation: n counts chunks; S' = dS / scale, so that the factor scale stays outside of the sums
///
///   X_n = K_n^T V_n,  X'_n = Q_n^T dO_n                       chunk_states_kernel
///   S before n  = S_0 + X_0 + ... + X_{n-1}                   running_sums_kernel, in the place of X_n
///   S' after n  = dS_end / scale + X'_{n+1} + ... + X'_{N-1}  the same, from the last chunk, in the place of X'_n
///   dQ_n = scale (dO_n (S before n)^T + ((dO_n V_n^T) . M) K_n)       gradient_kernel, three times
///   dK_n = scale (V_n (S' after n)^T + ((dO_n V_n^T) . M)^T Q_n)
///   dV_n = scale (K_n (S' after n)   + ((Q_n K_n^T) . M)^T dO_n)
///
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16; states and sums [B, H, N, Dk, Dv] fp32 for the N =
/// ceil(L / 64) chunks; in device memory. Shared memory holds three tiles and P, registers hold a tile of the state and
/// O.
/// Thread mapping: block (tile n, h, b) of the first and of the last kernel has 64 columns of chunk n's result, which
/// its four warps divide among them (common/tile/chunk_products.cuh). In the second kernel each thread has one element
/// of a state.
/// Precision: P and a copy of the state are rounded to bf16; sums are fp32, also those in memory.
/// Work: per position 10 Dk Dv operations with states, and three times 2 (64 + 16) / 2 (Dk + Dv) with scores on and
/// below the diagonal, in tiles of 16. The scores are computed once for each tile of columns.
/// Bytes: q, k and v three times, do four times, and each gradient once. The sums, 8 N Dk Dv bytes per head, are
/// written twice; S is read twice and dS three times. At Dk = Dv = 128 that is nine times as many bytes as q, k, v and
/// do.
/// Bound by: those bytes.
/// Requires: Dk and Dv multiples of 16, up to 256; rows aligned to 16 bytes.
/// Weakness: the sums cross device memory. `walks` keeps them on the chip.
/// Sources: arXiv 2312.06635, algorithm 1 with materialization, and the backward pass in its appendix.

#include <cuda_runtime.h>

#include "02_chunkwise/linear_attention_backward.hpp"
#include "02_chunkwise/linear_attention_backward/gradients.hpp"
#include "02_chunkwise/linear_attention_backward/requirements.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
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

constexpr int kSumThreads = 256;

/// X_n for each chunk, [B, H, N, Dk, Dv]. Grid (tiles of Dv of all chunks, H, B).
template <class Shape>
__global__ void __launch_bounds__(kThreads) chunk_states_kernel(Bf16Arguments a, float* states) {
  const BlockPart<Shape> part(extents_of(a), kChunk);
  const StateTiles<Shape> tiles(dynamic_shared<__nv_bfloat16>());
  const int N = (a.L - 1) / kChunk + 1, rows = a.L - part.begin;
  load_tile(tiles.K, a.k.row(part.b, part.h, part.begin), a.k.stride_l, rows, a.Dk);
  load_tile(tiles.V, a.v.row(part.b, part.h, part.begin) + part.first_column, a.v.stride_l, rows, part.columns);
  __syncthreads();
  typename Shape::State X = {};
  update_state<Shape>(X, tiles.K, tiles.V);
  float* state = states + (std::int64_t(part.head) * N + part.segment) * a.Dk * a.Dv + part.first_column;
  store_state<Shape>(state, X, a.Dv, a.Dk, part.columns);
}

/// Replaces the product of each chunk by the state that the chunk's gradient reads. Grid (ceil(Dk Dv / kSumThreads), H,
/// B).
/// @param g dq for S, dv for S'
/// @param states in the layout of the user's states: [B, H, N, Dk, Dv]
__global__ void __launch_bounds__(kSumThreads) running_sums_kernel(Gradient g, int Dk, int Dv, float* states) {
  const int h = int(blockIdx.y), b = int(blockIdx.z), N = (g.a.L - 1) / kChunk + 1;
  const int element = int(blockIdx.x) * kSumThreads + int(threadIdx.x), d = element / Dv, j = element % Dv;
  if (d >= Dk) return;
  float S = g.a.initial_state.data ? g.start_factor * load_global(&g.a.initial_state.row(b, h, d)[j]) : 0.0f;
  float* place = states + (std::int64_t(b) * g.a.H + h) * N * Dk * Dv + element;
  for (int i = 0; i < N; ++i) {
    const int n = g.is_reversed ? N - 1 - i : i;
    float* address = place + std::int64_t(n) * Dk * Dv;
    const float X = load_for_update(address);
    store_global(address, S);
    S += X;
  }
  if (g.a.final_state.data) store_global(&g.a.final_state.row(b, h, d)[j], S * g.a.scale);
}

/// One gradient of one chunk. Grid (tiles of its columns of all chunks, H, B).
/// @param states in the layout of the user's states, [B, H, N, ...]
template <class Shape>
__global__ void __launch_bounds__(kThreads) gradient_kernel(Gradient g, const float* states) {
  const Bf16Arguments& a = g.a;
  const BlockPart<Shape> part(extents_of(a), kChunk);
  const int b = part.b, h = part.h, t = part.begin, N = (a.L - 1) / kChunk + 1;
  const int first_column = part.first_column, columns = part.columns;
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
  const StateStrides strides = g.strides(g.is_transposed ? a.Dk : a.Dv);
  const float* start = states + (std::int64_t(part.head) * N + part.segment) * a.Dk * a.Dv;
  load_state<Shape>(S, start + first_column * strides.column, strides, a.Dk, columns);

  load(t);
  __syncthreads();
  typename Shape::Output O = {};
  masked_scores<Shape>(P, g.is_reversed ? tiles.K : tiles.Q, g.is_reversed ? tiles.Q : tiles.K);
  add_from_state<Shape>(O, tiles.Q, S);
  __syncthreads();
  g.is_reversed ? add_from_transposed_scores<Shape>(O, P, tiles.V) : add_from_scores<Shape>(O, P, tiles.V);
  store_output<Shape>(a.o.row(b, h, t) + first_column, a.o.stride_l, a.L - t, columns, O, tiles.V, a.scale);
}

template <class Shape>
constexpr std::size_t kSharedBytes = ChunkTiles<Shape>::kBytes + kChunk* kChunk * sizeof(__nv_bfloat16);

}  // namespace

void materialized_backward(const Bf16BackwardArguments& b) {
  const std::array<Gradient, 3> gradients = gradients_of(b);
  const Gradient &dq = gradients[0], &dk = gradients[1], &dv = gradients[2];
  const int N = ceil_div(b.L, kChunk);
  const std::size_t elements = std::size_t(materialized_backward_memory(b)) / sizeof(float) / 2;
  float* S = workspace<float>("linear_attention --backward: states", 2 * elements);
  float* dS = S + elements;

  Bf16Arguments forward = dv.a;  // k and v in the place of q and do
  forward.k = b.k, forward.v = b.v;
  select_shape(b.Dk, 64, [&]<class Shape>(Shape) {
    const LaunchConfig states{grid_of<Shape>(extents_of(dv.a), N), kThreads, StateTiles<Shape>::kBytes};
    launch(chunk_states_kernel<Shape>, states, forward, S);
    launch(chunk_states_kernel<Shape>, states, dv.a, dS);
  });
  const dim3 sums(unsigned(ceil_div(b.Dk * b.Dv, kSumThreads)), unsigned(b.H), unsigned(b.B));
  launch(running_sums_kernel, {sums, kSumThreads}, dq, b.Dk, b.Dv, S);
  launch(running_sums_kernel, {sums, kSumThreads}, dv, b.Dk, b.Dv, dS);

  for (const auto& [gradient, states] : {std::pair{&dq, S}, std::pair{&dk, dS}, std::pair{&dv, dS}}) {
    select_shape(gradient->a.Dk, 64, [&]<class Shape>(Shape) {
      launch(gradient_kernel<Shape>, {grid_of<Shape>(extents_of(gradient->a), N), kThreads, kSharedBytes<Shape>},
             *gradient, states);
    });
  }
}

}  // namespace tutorial::linear_attention
