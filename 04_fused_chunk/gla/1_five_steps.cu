/// @file
/// `five_steps`: how the first release of flash-linear-attention ran gla, step by step.
///
/// Idea: in sub-chunks of 16 positions, the walk over a sequence is two products per sub-chunk on tensor cores. They
/// need q with its decay from the sub-chunk's start and k with its decay to the sub-chunk's end, and both decays are at
/// most 1. They would be at most 1 in sub-chunks of any length: longer ones have fewer trips to memory in the walk,
/// shorter ones fewer pairs, and 16 is the height of one mma. The pairs of positions within a sub-chunk have a kernel of
/// their own. There are five kernels, and everything that they pass on to each other is in device memory. The names are
/// those of that release, whose chunks are our sub-chunks:
///
///   g [B,H,L,Dk] ---> 1 decay_cumsum (NK, NC, B H) ---> sums [B,H,L,Dk] fp32
///                                                        |        |
///   q, k [B,H,L,Dk] -----+------------------> 2 prepare_qg_kg     |
///                        |                       (NK, NC, B H)    |
///                        |             q_g, k_g [B,H,L,Dk] bf16   | the sub-chunks' last rows
///                        |                               |        |
///   v [B,H,L,Dv], S_0 ---|-------------------> 3 fused_chunk (NK, NV, B H): walks the NC sub-chunks
///        |               |                               |
///        |               |                   partials [NK,B,H,L,Dv] fp32, final state
///        |               |                               |
///        |       4 inner_chunk (NK, NC, B H) <- sums     |
///        |               |                               |
///        |       scores [NK,B,H,NC,16,16] bf16           |
///        |               |                               |
///        +-------> 5 combine (NV, NC, B H) <-------------+ ---> o [B,H,L,Dv]
///
/// Grows out of: 03_gla/gla/4_chunkwise.cpp; port to the GPU: chunks of 16, each step of the loop a kernel over all
/// sub-chunks, except for the walk
/// Improves on: `chunkwise` of chapter 03 has one CPU thread per head.
/// Unchanged: the result.
/// Equation: for position t of a sub-chunk, where b_end is b at its last position,
///
///   1  b_t = the sum of max(g / ln 2, -127) from its first position to t         element by element; `sums` in memory
///   2  q_g = q 2^b scale,  k_g = k 2^(b_end - b)                                likewise
///   3  partial = q_g S,  then S = diag(2^b_end) S + k_g^T v                     for each slice of 64 of Dk
///   4  P_ti = scale sum_d q_td k_id 2^(b_td - b_id), i <= t                     likewise
///   5  o = sum of partials + (sum of P) v
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L, Dk], S_0 and final_state [B, H, Dk, Dv] fp32. The
/// picture shows what lies in memory between the kernels, and the grids in parentheses: NC = ceil(L / 16) sub-chunks, NK
/// = ceil(Dk / 64) slices of the keys' width, NV = ceil(Dv / 64) of the values'.
/// Thread mapping: steps 1 and 2 have one block of 64 threads per sub-chunk, one thread per column. In step 3, a block
/// of four warps keeps a tile [64, 64] of the state in registers for the whole sequence, 16 columns per warp
/// (sub_chunk.cuh). Step 4 has one thread per pair of positions. Step 5 has one block per sub-chunk and 64 columns, on
/// tensor cores.
/// Resources: step 3: 32 registers per thread for S, and 6400 bytes of shared memory; step 4: 8448 bytes, step 5: 2816;
/// steps 1 and 2: none. q_g, k_g, P, and S in the product with q_g are bf16; b, partials and S are fp32.
/// Work: per position 4 Dk Dv and 2 * 16 Dv on tensor cores; per gate 9.5 exponentials: 7.5 for the pairs (the mean of
/// 0 to 15 positions before t), one each for q_g and k_g.
/// Bytes: those of the picture. A tensor with two arrows is read twice. q_g, k_g and the scores are read once per slice
/// of Dv, and step 3 reads v once per slice of Dk.
/// Bound by: the walk's latency. A sub-chunk has 16 positions and four dependent mma, and the next one cannot begin
/// before it ends. This takes L / 16 dependent trips to memory. After that, the memory's bandwidth.
/// Requires: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes; L <= 16 * 65535, B H <= 65535.
/// Weakness: the bytes between the kernels, each of which reads what another has just written. `intra_fused` has two
/// kernels.
/// Sources: flash-linear-attention, first release, `fused_chunk_gla`; arXiv 2312.06635, section 4.

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/sub_chunk.cuh"
#include "common/device/launch.cuh"
#include "common/parts.hpp"
#include "common/tile/decay_rows.cuh"

namespace tutorial::fused_gla {
namespace {

/// Grid (NK, NC, B H), one thread per column.
__global__ void __launch_bounds__(kSlice) decay_cumsum_kernel(Bf16Arguments a, Intermediates x) {
  const SubChunk w = block_sub_chunk(a);
  const int d = int(blockIdx.x) * kSlice + int(threadIdx.x);
  if (d >= a.Dk) return;
  float g[kSubChunk];
  load_column(g, a.g.row(w.b, w.h, w.t) + d, a.g.stride_l, w.rows);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) {
    sum += clamped_base2(g[i]);
    if (i < w.rows) store_global(x.sums.row(w.b, w.h, w.t + i) + d, sum);
  }
}

/// Grid (NK, NC, B H), one thread per column.
__global__ void __launch_bounds__(kSlice, 8) prepare_qg_kg_kernel(Bf16Arguments a, Intermediates x) {
  const SubChunk w = block_sub_chunk(a);
  const int d = int(blockIdx.x) * kSlice + int(threadIdx.x);
  if (d >= a.Dk) return;
  float sums[kSubChunk], q[kSubChunk], k[kSubChunk], last = 0;
  load_column(sums, x.sums.row(w.b, w.h, w.t) + d, x.sums.stride_l, w.rows);
  load_column(q, a.q.row(w.b, w.h, w.t) + d, a.q.stride_l, w.rows);
  load_column(k, a.k.row(w.b, w.h, w.t) + d, a.k.stride_l, w.rows);
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) last = i < w.rows ? sums[i] : last;
#pragma unroll
  for (int i = 0; i < kSubChunk; ++i) {
    if (i >= w.rows) continue;
    store_global(x.q_g.row(w.b, w.h, w.t + i) + d, __float2bfloat16(q[i] * exp2f(sums[i]) * a.scale));
    store_global(x.k_g.row(w.b, w.h, w.t + i) + d, __float2bfloat16(k[i] * exp2f(last - sums[i])));
  }
}

/// Grid (NK, NV, B H): the block's tile of the state walks all sub-chunks.
__global__ void __launch_bounds__(kThreads, 6) fused_chunk_kernel(Bf16Arguments a, Intermediates x) {
  const int head = int(blockIdx.z), b = head / a.H, h = head % a.H;
  const int d = int(blockIdx.x) * kSlice, Dk = min(kSlice, a.Dk - d);       // of the slice
  const int j = int(blockIdx.y) * kSlice, columns = min(kSlice, a.Dv - j);  // likewise
  float* partial = x.partials + (std::int64_t(blockIdx.x) * gridDim.z + head) * a.L * a.Dv + j;

  auto* memory = dynamic_shared<__nv_bfloat16>();
  const SwizzledTile<kSlice> Q_g{memory}, K_g{memory + kSubChunk * kSlice}, V{memory + 2 * kSubChunk * kSlice};
  auto* decay = reinterpret_cast<float*>(memory + 3 * kSubChunk * kSlice);  // [kSlice]
  using Shape = tile::ChunkShape<kSlice, kSlice>;
  Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, d) + j : nullptr;
  tile::load_state<Shape>(S, start, a.initial_state.stride_l, Dk, columns);
  for (int t = 0; t < a.L; t += kSubChunk) {
    const int rows = min(kSubChunk, a.L - t), thread = int(threadIdx.x);
    load_rows(Q_g, x.q_g.row(b, h, t) + d, a.Dk, rows, Dk);
    load_rows(K_g, x.k_g.row(b, h, t) + d, a.Dk, rows, Dk);
    load_rows(V, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
    if (thread < kSlice) {
      decay[thread] = thread < Dk ? exp2f(load_global(x.sums.row(b, h, t + rows - 1) + d + thread)) : 0.0f;
    }
    __syncthreads();
    Output O = {};
    add_from_state<Shape>(O, Q_g, S);  // of this slice of Dk: a partial sum
    for_each_pair(O, rows, columns, [&](int row, int column, const float* two) {
      store_global(reinterpret_cast<float2*>(partial + std::int64_t(t + row) * a.Dv + column),
                   make_float2(two[0], two[1]));
    });
    tile::decay_rows<Shape>(S, [&](int row) { return *reinterpret_cast<const float2*>(decay + row); });
    update_state<Shape>(S, K_g, V);  // the next sub-chunk waits for this
    __syncthreads();
  }
  if (a.final_state.data) {
    tile::store_state<Shape>(a.final_state.row(b, h, d) + j, S, a.final_state.stride_l, Dk, columns);
  }
}

/// Grid (NK, NC, B H).
__global__ void __launch_bounds__(kThreads) inner_chunk_kernel(Bf16Arguments a, Intermediates x) {
  const SubChunk w = block_sub_chunk(a);
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

/// Grid (NV, NC, B H).
__global__ void __launch_bounds__(kThreads) combine_kernel(Bf16Arguments a, Intermediates x) {
  const SubChunk w = block_sub_chunk(a);
  const int j = int(blockIdx.x) * kSlice, columns = min(kSlice, a.Dv - j);
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const SwizzledTile<kSlice> V{memory};
  const ScoreTile P{memory + kSubChunk * kSlice};
  load_rows(V, a.v.row(w.b, w.h, w.t) + j, a.v.stride_l, w.rows, columns);
  load_scores(P, x, a, int(blockIdx.z), int(blockIdx.y));
  __syncthreads();

  Output O = {};
  add_from_scores(O, P, V);
  for_each_pair(O, w.rows, columns, [&](int i, int c, const float* two) {
    float2 sum = make_float2(two[0], two[1]);
    for (int slice = 0; slice < slices(a.Dk); ++slice) {
      const std::int64_t position = (std::int64_t(slice) * gridDim.z + blockIdx.z) * a.L + w.t + i;
      const float2 partial = load_global(reinterpret_cast<const float2*>(x.partials + position * a.Dv + j + c));
      sum.x += partial.x;
      sum.y += partial.y;
    }
    store_global(reinterpret_cast<std::uint32_t*>(a.o.row(w.b, w.h, w.t + i) + j + c), pack(sum.x, sum.y));
  });
}

constexpr std::size_t kTileBytes = kSubChunk * kSlice * sizeof(__nv_bfloat16), kDecayBytes = kSlice * sizeof(float);
constexpr std::size_t kSumBytes = SumTile<kSlice>::kElements * sizeof(float);
constexpr std::size_t kScoreBytes = ScoreTile::kElements * sizeof(__nv_bfloat16);

}  // namespace

void five_steps(const Bf16Arguments& a) {
  const Intermediates x = intermediates(a, true);
  const unsigned NK = unsigned(slices(a.Dk)), NV = unsigned(slices(a.Dv)), NC = unsigned(sub_chunks(a.L));
  const unsigned heads = unsigned(a.B * a.H);
  launch(decay_cumsum_kernel, {dim3(NK, NC, heads), kSlice}, a, x);
  end_part("decay_cumsum");
  launch(prepare_qg_kg_kernel, {dim3(NK, NC, heads), kSlice}, a, x);
  end_part("prepare_qg_kg");
  launch(fused_chunk_kernel, {dim3(NK, NV, heads), kThreads, 3 * kTileBytes + kDecayBytes}, a, x);
  end_part("fused_chunk");
  launch(inner_chunk_kernel, {dim3(NK, NC, heads), kThreads, 2 * kTileBytes + kSumBytes}, a, x);
  end_part("inner_chunk");
  launch(combine_kernel, {dim3(NV, NC, heads), kThreads, kTileBytes + kScoreBytes}, a, x);
  end_part("combine");
}

}  // namespace tutorial::fused_gla
