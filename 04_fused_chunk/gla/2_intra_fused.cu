/// @file
/// `intra_fused`: two kernels, one of which walks, computes the scores and writes o.
///
/// Idea: three times a kernel of `five_steps` reads what another one has just had on the chip.
///
///   - A thread that walks down a column of g has all 16 sums in registers when it reaches the end, including the last
///     one. So it can multiply q and k by their decays itself: steps 1 and 2 in one pass.
///   - If a block of the walk has all of Dk instead of a slice of 64, its product with the state is complete, not a
///     partial sum. The block adds P v, the part of the pairs, and writes o itself, once and in bf16.
///   - The block that walks over a sub-chunk can compute the scores of its pairs there. They go from registers through
///     shared memory into the next product.
///
/// Grows out of: 1_five_steps.cu
/// Improves on: `five_steps` writes partials in fp32, 2 NK times the bytes of o there and back, and the scores, and
/// starts five kernels.
/// Unchanged: the products of the walk and what is computed for a pair. The sums are still written, because the walk
/// needs them.
/// Equation: for each sub-chunk, where b_end is b at its last position,
///
///   P_ti = scale sum_d q_td k_id 2^(b_td - b_id), i <= t               once for each 64 columns of v
///   o    = q_g S + P v,   then S = diag(2^b_end) S + k_g^T v
///
/// Shapes: q, k, q_g, k_g [B, H, L, Dk], v, o [B, H, L, Dv] bf16; sums, which are b, [B, H, L, Dk], S_0 and final_state
/// [B, H, Dk, Dv] fp32, in device memory. In shared memory: a sub-chunk of q, k, q_g, k_g, sums and v, and P [16, 16].
/// Thread mapping: the first kernel as steps 1 and 2, grid (NK, NC, B H). Block (x, head) of the walk has 64 columns of
/// v, o and S, from column 64 x on, and all of Dk; each of the four warps has 16 columns of S in its registers, 64 per
/// thread at Dk = 128. 120 threads compute the score of one pair each.
/// Resources: 80 registers per thread of the first kernel; 28 KB of shared memory of the walk at Dk = 128, three blocks
/// per multiprocessor.
/// Work: as in `five_steps`, but the pairs are computed again for each 64 columns of v.
/// Bytes: g, q and k once; 8 Dk per position are written by the first kernel; the walk reads them, with q and k, once
/// per 64 columns of v; v and o once. The scores that this saves are small. If Dv > 64, it would move fewer bytes to
/// compute them in a kernel of their own, which reads q, k and sums only once.
/// Bound by: latency, more than before: the walk has NK times fewer blocks, and the pairs are now in the chain from
/// sub-chunk to sub-chunk. In `five_steps`, all sub-chunks computed their pairs at once.
/// Requires: as `five_steps`.
/// Weakness: the walk reads q and k in two forms, although it could compute one from the other. And the loads of a
/// sub-chunk do not overlap with its products.
/// Sources: as `five_steps`; arXiv 2312.06635, algorithm 1.

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/sub_chunk.cuh"
#include "common/device/launch.cuh"
#include "common/parts.hpp"
#include "common/tile/decay_rows.cuh"
#include "common/tile/select_shape.cuh"

namespace tutorial::fused_gla {
namespace {

/// Grid (NK, NC, B H), one thread per column.
__global__ void __launch_bounds__(kSlice) prepare_kernel(Bf16Arguments a, Intermediates x) {
  const SubChunk w = block_sub_chunk(a);
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
  typename Shape::KeyTile Q, K, Q_g, K_g;
  typename Shape::ValueTile V;
  ScoreTile P;
  SumTile<Shape::kDk> sums;
  float* decay;  ///< [Shape::kDk]

  static constexpr std::size_t kBytes =
      (kSubChunk * (4 * Shape::kDk + kSlice) + ScoreTile::kElements) * sizeof(__nv_bfloat16) +
      (SumTile<Shape::kDk>::kElements + Shape::kDk) * sizeof(float);

  __device__ explicit Tiles(__nv_bfloat16* memory)
      : Q{memory},
        K{Q.data + kSubChunk * Shape::kDk},
        Q_g{K.data + kSubChunk * Shape::kDk},
        K_g{Q_g.data + kSubChunk * Shape::kDk},
        V{K_g.data + kSubChunk * Shape::kDk},
        P{V.data + kSubChunk * kSlice},
        sums{reinterpret_cast<float*>(P.data + ScoreTile::kElements)},
        decay(sums.data + SumTile<Shape::kDk>::kElements) {}
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
    load_rows(tiles.Q, a.q.row(b, h, t), a.q.stride_l, rows, a.Dk);
    load_rows(tiles.K, a.k.row(b, h, t), a.k.stride_l, rows, a.Dk);
    load_rows(tiles.Q_g, x.q_g.row(b, h, t), a.Dk, rows, a.Dk);
    load_rows(tiles.K_g, x.k_g.row(b, h, t), a.Dk, rows, a.Dk);
    load_rows(tiles.V, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
    load_rows(tiles.sums, x.sums.row(b, h, t), a.Dk, rows, a.Dk);
    __syncthreads();
    sub_chunk_scores(tiles.Q, tiles.K, tiles.sums, a.scale,
                     [&](int row, int i, float score) { *tiles.P.at(row, i) = __float2bfloat16(score); });
    for (int d = thread; d < Shape::kDk; d += kThreads) tiles.decay[d] = exp2f(*tiles.sums.at(rows - 1, d));
    Output O = {};
    add_from_state<Shape>(O, tiles.Q_g, S);  // of all of Dk
    __syncthreads();                         // P is there
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

}  // namespace

void intra_fused(const Bf16Arguments& a) {
  const Intermediates x = intermediates(a, false);
  const unsigned NK = unsigned(slices(a.Dk)), NV = unsigned(slices(a.Dv)), NC = unsigned(sub_chunks(a.L));
  const unsigned heads = unsigned(a.B * a.H);
  launch(prepare_kernel, {dim3(NK, NC, heads), kSlice}, a, x);
  end_part("prepare");
  tile::select_shape(a.Dk, [&]<class Shape>(Shape) {
    launch(walk_kernel<Shape>, {dim3(NV, heads), kThreads, Tiles<Shape>::kBytes}, a, x);
  });
  end_part("walk");
}

}  // namespace tutorial::fused_gla
