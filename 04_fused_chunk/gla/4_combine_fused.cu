/// @file
/// `combine_fused`: the walk writes o itself.
///
/// Idea: if a block has all of Dk instead of a slice of 64, its product with the state is complete, not a partial sum.
/// The block adds P v, the part of the pairs, itself and writes o once, in bf16.
/// Grows out of: 3_prepare_fused.cu
/// Improves on: `prepare_fused` writes partials in fp32 and reads them again. Each takes 2 NK times the bytes of o.
/// Unchanged: the kernel that prepares and the kernel of the scores, which now runs before the walk.
/// Equation: for each sub-chunk, whose last position is e,
///
///   P   = sum of the slices' scores
///   o   = q_g S + P v,   then S = diag(2^b_e) S + k_g^T v
///
/// Shapes: q_g, k_g [B, H, L, Dk], v, o [B, H, L, Dv], scores [NK, B, H, R, 16, 16] bf16; sums, which are b, [B, H, L,
/// Dk], S_0 and final_state [B, H, Dk, Dv] fp32, in global memory. In shared memory: a sub-chunk of q_g, k_g and v, and
/// P [16, 16].
/// Thread mapping: block (x, head) of the walk has 64 columns of v, o and S, from column 64 x on, and all of Dk; each
/// of the four warps has 16 columns of S in its registers, 64 per thread at Dk = 128.
/// Resources: 11 KB of shared memory at Dk = 128, three blocks per multiprocessor.
/// Work: as in `five_steps`.
/// Bytes: 8 NK Dv fewer per position for the partials; v once instead of NK + 1 times.
/// Bound by: the walk's latency, now with half as many blocks at Dk = 128.
/// Requires: as `five_steps`.
/// Weakness: the scores go through memory. The walk has the sub-chunk on the chip and could compute them, as
/// `intra_fused` does.
/// Sources: as `five_steps`.

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/sub_chunk.cuh"
#include "common/device/launch.cuh"
#include "common/parts.hpp"
#include "common/tile/select_shape.cuh"

namespace tutorial::fused_gla {
namespace {

/// Grid (NK, R, B H), one thread per column.
__global__ void __launch_bounds__(kSlice) prepare_kernel(Bf16Arguments a, Intermediates x) {
  const BlockSubChunk w(a);
  const int d = int(blockIdx.x) * kSlice + int(threadIdx.x);
  if (d >= a.Dk) return;
  float sums[kSubChunk], q[kSubChunk], k[kSubChunk], last = 0;
  load_column(sums, a.g.row(w.b, w.h, w.t) + d, a.g.stride_l, w.rows);
  load_column(q, a.q.row(w.b, w.h, w.t) + d, a.q.stride_l, w.rows);
  load_column(k, a.k.row(w.b, w.h, w.t) + d, a.k.stride_l, w.rows);
#pragma unroll
  for (float& sum : sums) {  // below the last row g is 0 and changes nothing
    last += clamped_base2(sum);
    sum = last;
  }
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) {
    if (i >= w.rows) continue;
    store_global(x.sums.row(w.b, w.h, w.t + i) + d, sums[i]);
    store_global(x.q_g.row(w.b, w.h, w.t + i) + d, __float2bfloat16(q[i] * exp2f(sums[i]) * a.scale));
    store_global(x.k_g.row(w.b, w.h, w.t + i) + d, __float2bfloat16(k[i] * exp2f(last - sums[i])));
  }
}

/// A sub-chunk in shared memory.
template <class Shape>
struct Tiles {
  typename Shape::KeyTile Q_g, K_g;
  typename Shape::ValueTile V;
  ScoreTile P;
  float* decay;  ///< [Shape::kDk]

  static constexpr std::size_t kBytes =
      (kSubChunk * (2 * Shape::kDk + kSlice) + ScoreTile::kElements) * sizeof(__nv_bfloat16) +
      Shape::kDk * sizeof(float);

  __device__ explicit Tiles(__nv_bfloat16* memory)
      : Q_g{memory},
        K_g{Q_g.data + kSubChunk * Shape::kDk},
        V{K_g.data + kSubChunk * Shape::kDk},
        P{V.data + kSubChunk * kSlice},
        decay(reinterpret_cast<float*>(P.data + ScoreTile::kElements)) {}
};

/// Grid (NV, B H): the block's columns of the state walk all sub-chunks.
template <class Shape>
__global__ void __launch_bounds__(kThreads, Shape::kDk <= 128 ? 3 : 2) walk_kernel(Bf16Arguments a, Intermediates x) {
  const int head = int(blockIdx.y), b = head / a.H, h = head % a.H;
  const int j = int(blockIdx.x) * kSlice, columns = min(kSlice, a.Dv - j);
  const Tiles<Shape> tiles(dynamic_shared<__nv_bfloat16>());

  typename Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, 0) + j : nullptr;
  tile::load_state<Shape>(S, start, a.initial_state.stride_l, a.Dk, columns);
  for (int t = 0; t < a.L; t += kSubChunk) {
    const int rows = min(kSubChunk, a.L - t), thread = int(threadIdx.x);
    load_rows(tiles.Q_g, x.q_g.row(b, h, t), a.Dk, rows, a.Dk);
    load_rows(tiles.K_g, x.k_g.row(b, h, t), a.Dk, rows, a.Dk);
    load_rows(tiles.V, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
    for (int d = thread; d < Shape::kDk; d += kThreads) {
      tiles.decay[d] = d < a.Dk ? exp2f(load_global(x.sums.row(b, h, t + rows - 1) + d)) : 0.0f;
    }
    load_scores(tiles.P, x, a, head, t / kSubChunk);
    __syncthreads();
    Output O = {};
    add_from_state<Shape>(O, tiles.Q_g, S);
    add_from_scores(O, tiles.P, tiles.V);
    for_each_pair(O, rows, columns, [&](int i, int c, const float* two) {
      store_global(reinterpret_cast<std::uint32_t*>(a.o.row(b, h, t + i) + j + c), pack(two[0], two[1]));
    });
    tile::decay_rows<Shape>(S, [&](int d) { return *reinterpret_cast<const float2*>(tiles.decay + d); });
    update_state<Shape>(S, tiles.K_g, tiles.V);
    __syncthreads();
  }
  if (a.final_state.data) {
    tile::store_state<Shape>(a.final_state.row(b, h, 0) + j, S, a.final_state.stride_l, a.Dk, columns);
  }
}

/// Grid (NK, R, B H).
__global__ void __launch_bounds__(kThreads) inner_chunk_kernel(Bf16Arguments a, Intermediates x) {
  const BlockSubChunk w(a);
  const int d = int(blockIdx.x) * kSlice, Dk = min(kSlice, a.Dk - d);
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const SwizzledTile<kSlice> Q{memory}, K{memory + kSubChunk * kSlice};
  const SumTile<kSlice> sums{reinterpret_cast<float*>(memory + 2 * kSubChunk * kSlice)};
  load_rows(Q, a.q.row(w.b, w.h, w.t) + d, a.q.stride_l, w.rows, Dk);
  load_rows(K, a.k.row(w.b, w.h, w.t) + d, a.k.stride_l, w.rows, Dk);
  load_rows(sums, x.sums.row(w.b, w.h, w.t) + d, a.Dk, w.rows, Dk);
  __syncthreads();
  __nv_bfloat16* P = scores_of(x, a, int(blockIdx.x), int(blockIdx.z), int(blockIdx.y));
  sub_chunk_scores(Q, K, sums, a.scale,
                   [&](int t, int i, float score) { store_global(P + t * kSubChunk + i, __float2bfloat16(score)); });
}

constexpr std::size_t kTileBytes = kSubChunk * kSlice * sizeof(__nv_bfloat16);
constexpr std::size_t kSumBytes = SumTile<kSlice>::kElements * sizeof(float);

}  // namespace

void combine_fused(const Bf16Arguments& a) {
  const Intermediates x = intermediates(a, true, false);
  const unsigned NK = unsigned(slices(a.Dk)), NV = unsigned(slices(a.Dv)), R = unsigned(sub_chunks(a.L));
  const unsigned heads = unsigned(a.B * a.H);
  launch(prepare_kernel, {dim3(NK, R, heads), kSlice}, a, x);
  end_part("prepare");
  launch(inner_chunk_kernel, {dim3(NK, R, heads), kThreads, 2 * kTileBytes + kSumBytes}, a, x);
  end_part("inner_chunk");
  tile::select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(walk_kernel<Shape>, {dim3(NV, heads), kThreads, Tiles<Shape>::kBytes}, a, x);
  });
  end_part("walk");
}

}  // namespace tutorial::fused_gla
