/// @file
/// Stage 3, `materialized`: chapter 02's kernels with decays, and dg from states that are in memory anyway.
///
/// Idea: with S and dS of every chunk in memory, the gradients of all chunks can be computed at once, and so can dg.
/// A chunk needs no running sum over all later positions: at its end dg is the product <S, dS> of two states that are
/// there. So what q . dq - k . dk loses to rounding is added up over one chunk, not over the sequence.
/// Grows out of: 2_chunkwise.cpp; large step: the walks become sums over chunks, and their products mma
/// Improves on: `chunkwise` has one thread per head and walks the chunks of a head one after the other.
/// Unchanged: the products of a chunk and the kernels for dq, dk and dv. C is 64.
/// Equation: n counts chunks, from position s to position e, and states: state n is the one after n chunks. With b_t =
/// g_s / ln 2 + ... + g_t / ln 2; P and R as in `chunkwise`; S' = dS / scale, so that the factor scale stays outside of
/// the sums
///
///   X_n = (diag(2^(b_e - b)) K_n)^T V_n,  X'_n = (diag(2^b) Q_n)^T dO_n        chunk_states_kernel
///   S_{n+1} = 2^b_e S_n + X_n             in the place of X_n                  running_sums_kernel
///   S'_n    = 2^b_e S'_{n+1} + X'_n       in the place of X'_n                 the same, from the last chunk
///   dQ_n = scale (diag(2^b) dO_n S_n^T + R_n K_n)                              gradient_kernel, three times
///   dK_n = scale (diag(2^(b_e - b)) V_n S'_{n+1}^T + R_n^T Q_n)
///   dV_n = scale (diag(2^(b_e - b)) K_n S'_{n+1} + P_n^T dO_n)
///   dg_t = scale <S_{n+1}, S'_{n+1}> + sum_{i = t..e} (q_i . dq_i - k_i . dk_i)         gate_gradient_kernel
///
/// Shapes: q, k, dq, dk [B, H, L, Dk], v, do, dv [B, H, L, Dv] bf16; g, dg [B, H, L] fp32; states [B, H, N + 1, Dk, Dv]
/// fp32 for the N = ceil(L / 64) chunks; decays of whole chunks [B, H, N]; row products (gradients.hpp); in device
/// memory. Shared memory holds four tiles and P, registers hold a tile of the state and O.
/// Thread mapping: block (tile n, h, b) of chunk_states_kernel and of gradient_kernel has 64 columns of chunk n's
/// result, which its four warps divide among them (common/tile/chunk_products.cuh). In running_sums_kernel each thread
/// has one element of a state. Block (n, h, b) of gate_gradient_kernel multiplies two states, and its first warp has
/// two positions per lane.
/// Precision: P, R, decayed rows and a copy of the state are rounded to bf16; sums are fp32, also those in memory, and
/// so are the row products.
/// Work: per position 10 Dk Dv operations with states, and three times 2 (64 + 16) / 2 (Dk + Dv) with scores on and
/// below the diagonal, in tiles of 16. The scores are computed once for each tile of columns. Dk Dv / 32 operations for
/// <S, S'>, and 4 Dk for row products.
/// Bytes: q and k four times, v three times, do four times, and each gradient once. The states, 8 N Dk Dv bytes per
/// head, are written twice; S is read three times and S' four times. At Dk = Dv = 128 that is eleven times as many
/// bytes as q, k, v and do.
/// Bound by: those bytes.
/// Requires: Dk and Dv multiples of 16, up to 256; rows aligned to 16 bytes. Gates and states as `fused` of the
/// operator.
/// Weakness: the states cross device memory. `walks` keeps them on the chip.
/// Sources: arXiv 2312.06635, algorithm 1 with materialization and section 4.3; arXiv 2405.21060, section 6.

#include <cuda_runtime.h>

#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/gate_gradient.cuh"
#include "04_fused_chunk/simple_gla_backward/gradients.hpp"
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

namespace tutorial::simple_gla {
namespace {

using namespace tile;

constexpr int kSumThreads = 256;

/// X_n for each chunk, in the place of the state to which it is added: [B, H, N + 1, Dk, Dv]. Grid (tiles of Dv of all
/// chunks, H, B).
/// @param decays [B, H, N]: of whole chunks
template <class Shape>
__global__ void __launch_bounds__(kThreads) chunk_states_kernel(Gradient g, float* states, float* decays) {
  const Bf16Arguments& a = g.a;
  const BlockPart<Shape> part(extents_of(a), kChunk);
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const StateTiles<Shape> tiles(memory);
  const SharedSums sums{reinterpret_cast<float*>(memory + StateTiles<Shape>::kElements)};
  const int N = (a.L - 1) / kChunk + 1, rows = a.L - part.begin;
  load_tile(tiles.K, a.k.row(part.b, part.h, part.begin), a.k.stride_l, rows, a.Dk);
  load_tile(tiles.V, a.v.row(part.b, part.h, part.begin) + part.first_column, a.v.stride_l, rows, part.columns);
  if (threadIdx.x < 32) sums.store(ChunkSums(load_g(a, part.b, part.h, part.begin, a.L)));
  __syncthreads();
  const DirectedDecays directed(sums, g.is_reversed);
  typename Shape::State X = {};
  update_state<Shape>(X, tiles.K, tiles.V, directed);
  const int place = part.segment + (g.is_reversed ? 0 : 1);
  float* state = states + (std::int64_t(part.head) * (N + 1) + place) * a.Dk * a.Dv + part.first_column;
  store_state<Shape>(state, X, a.Dv, a.Dk, part.columns);
  if (threadIdx.x == 0 && part.first_column == 0) {
    store_global(decays + std::int64_t(part.head) * N + part.segment, directed.whole);
  }
}

/// Makes states of the chunks' products. Grid (ceil(Dk Dv / kSumThreads), H, B).
/// @param g dq for S, dv for S'
/// @param states in the layout of the user's states: [B, H, N + 1, Dk, Dv]
__global__ void __launch_bounds__(kSumThreads)
    running_sums_kernel(Gradient g, int Dk, int Dv, float* states, const float* decays) {
  const int h = int(blockIdx.y), b = int(blockIdx.z), N = (g.a.L - 1) / kChunk + 1;
  const int element = int(blockIdx.x) * kSumThreads + int(threadIdx.x), d = element / Dv, j = element % Dv;
  if (d >= Dk) return;
  float S = g.a.initial_state.data ? g.start_factor * load_global(&g.a.initial_state.row(b, h, d)[j]) : 0.0f;
  const std::int64_t head = std::int64_t(b) * g.a.H + h;
  float* place = states + head * (N + 1) * Dk * Dv + element;
  store_global(place + (g.is_reversed ? std::int64_t(N) * Dk * Dv : 0), S);
  for (int i = 0; i < N; ++i) {
    const int n = g.is_reversed ? N - 1 - i : i;
    float* address = place + std::int64_t(g.is_reversed ? n : n + 1) * Dk * Dv;
    S = load_global(decays + head * N + n) * S + load_for_update(address);
    store_global(address, S);
  }
  if (g.a.final_state.data) store_global(&g.a.final_state.row(b, h, d)[j], S * g.a.scale);
}

/// One gradient of one chunk. Grid (tiles of its columns of all chunks, H, B).
/// @param states in the layout of the user's states, [B, H, N + 1, ...]
/// @param products the gradient's RowProducts, or null
template <class Shape>
__global__ void __launch_bounds__(kThreads) gradient_kernel(Gradient g, const float* states, float* products) {
  const Bf16Arguments& a = g.a;
  const BlockPart<Shape> part(extents_of(a), kChunk);
  const int b = part.b, h = part.h, t = part.begin, N = (a.L - 1) / kChunk + 1;
  const int first_column = part.first_column, columns = part.columns, rows = a.L - t;
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const ChunkTiles<Shape> tiles(memory);
  const typename Shape::ScoreTile P{memory + ChunkTiles<Shape>::kElements};
  const typename Shape::ValueTile partner{P.data + kChunk * kChunk};
  const SharedSums sums{reinterpret_cast<float*>(partner.data + kChunk * Shape::kDv)};
  const TileProducts row_products{sums.b + kChunk};

  typename Shape::State S;
  const StateStrides strides = g.strides(g.is_transposed ? a.Dk : a.Dv);
  const int place = part.segment + (g.is_reversed ? 1 : 0);
  const float* start = states + (std::int64_t(part.head) * (N + 1) + place) * a.Dk * a.Dv;
  load_state<Shape>(S, start + first_column * strides.column, strides, a.Dk, columns);

  load_tile(tiles.Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
  load_tile(tiles.K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
  load_tile(tiles.V, a.v.row(b, h, t) + first_column, a.v.stride_l, rows, columns);
  if (products) load_tile(partner, g.partner.row(b, h, t) + first_column, g.partner.stride_l, rows, columns);
  if (threadIdx.x < 32) sums.store(ChunkSums(load_g(a, b, h, t, a.L)));
  __syncthreads();
  const DirectedDecays directed(sums, g.is_reversed);
  typename Shape::Output O = {};
  masked_scores<Shape>(P, g.is_reversed ? tiles.K : tiles.Q, g.is_reversed ? tiles.Q : tiles.K,
                       DecayedScores{sums, a.scale});
  add_from_state<Shape>(O, tiles.Q, S);
  scale_rows<Shape>(O, [&](int i) { return a.scale * directed.from_state(i); });
  __syncthreads();
  g.is_reversed ? add_from_transposed_scores<Shape>(O, P, tiles.V) : add_from_scores<Shape>(O, P, tiles.V);
  store_output<Shape>(a.o.row(b, h, t) + first_column, a.o.stride_l, rows, columns, O, tiles.V, 1.0f);
  if (!products) return;
  row_products.multiply<Shape>(O, partner);
  __syncthreads();
  const std::int64_t tile = first_column / Shape::kDv, heads = std::int64_t(a.B) * a.H;
  row_products.store(products + (tile * heads + part.head) * a.L + t, rows);
}

/// dg of one chunk. Grid (N, H, B).
/// @param S,dS the states, [B, H, N + 1, Dk, Dv]; dS / scale
__global__ void __launch_bounds__(kThreads)
    gate_gradient_kernel(Bf16BackwardArguments a, const float* S, const float* dS, RowProducts products) {
  __shared__ float parts[kWarps];
  const int b = int(blockIdx.z), h = int(blockIdx.y), n = int(blockIdx.x), N = int(gridDim.x), size = a.Dk * a.Dv;
  const std::int64_t state = ((std::int64_t(b) * a.H + h) * (N + 1) + n + 1) * size;
  multiply_states(S + state, dS + state, size, parts);
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum_from_end(a, products, b, h, n * kChunk, a.scale * (parts[0] + parts[1] + parts[2] + parts[3]));
}

template <class Shape>
constexpr std::size_t kSharedBytes = ChunkTiles<Shape>::kBytes +
                                     kChunk*(kChunk + Shape::kDv) * sizeof(__nv_bfloat16) + SharedSums::kBytes
                                     + TileProducts::kBytes;

/// The elements of S, which are as many as those of dS.
std::int64_t state_elements(const Bf16BackwardArguments& b) {
  return std::int64_t(b.B) * b.H * (ceil_div(b.L, kChunk) + 1) * b.Dk * b.Dv;
}

}  // namespace

void materialized_backward(const Bf16BackwardArguments& b) {
  const std::array<Gradient, 3> gradients = gradients_of(b);
  const Gradient &dq = gradients[0], &dk = gradients[1], &dv = gradients[2];
  const int N = ceil_div(b.L, kChunk);
  float* S = workspace<float>("simple_gla --backward: states", std::size_t(materialized_backward_memory(b)) / 4);
  float* dS = S + state_elements(b);
  const RowProducts products(b, dS + state_elements(b));
  float* decays = products.read + RowProducts::elements(b);

  Gradient forward = dv;  // k and v in the place of q and do
  forward.a.k = b.k, forward.a.v = b.v, forward.is_reversed = false;
  select_shape(b.Dk, [&]<class Shape>(Shape) {
    const LaunchConfig states{grid_of<Shape>(extents_of(dv.a), N), kThreads,
                              StateTiles<Shape>::kBytes + SharedSums::kBytes};
    launch(chunk_states_kernel<Shape>, states, forward, S, decays);
    launch(chunk_states_kernel<Shape>, states, dv, dS, decays);
  });
  const dim3 sums(unsigned(ceil_div(b.Dk * b.Dv, kSumThreads)), unsigned(b.H), unsigned(b.B));
  launch(running_sums_kernel, {sums, kSumThreads}, dq, b.Dk, b.Dv, S, decays);
  launch(running_sums_kernel, {sums, kSumThreads}, dv, b.Dk, b.Dv, dS, decays);

  int i = 0;
  for (const auto& [gradient, states] : {std::pair{&dq, S}, std::pair{&dk, dS}, std::pair{&dv, dS}}) {
    select_shape(gradient->a.Dk, [&]<class Shape>(Shape) {
      launch(gradient_kernel<Shape>, {grid_of<Shape>(extents_of(gradient->a), N), kThreads, kSharedBytes<Shape>},
             *gradient, states, products.of(i++));
    });
  }
  launch(gate_gradient_kernel, {dim3(unsigned(N), unsigned(b.H), unsigned(b.B)), kThreads}, b, S, dS, products);
}

std::string materialized_backward_unsupported(const Bf16BackwardArguments& b) {
  return gradients_unsupported(b);
}

std::int64_t materialized_backward_memory(const Bf16BackwardArguments& b) {
  const std::int64_t chunks = std::int64_t(b.B) * b.H * ceil_div(b.L, kChunk);
  return std::int64_t(sizeof(float)) * (2 * state_elements(b) + RowProducts::elements(b) + chunks);
}

}  // namespace tutorial::simple_gla
