/// @file
/// `prepare_fused`: the running sums are used where they are computed.
///
/// Idea: a thread that walks down a column of g has all 16 sums in registers when it reaches the end, including the
/// last one. So the same thread can multiply q and k by their decays.
/// Grows out of: 2_five_steps.cu
/// Improves on: in `five_steps`, step 2 waits for a launch and reads back from memory what step 1 has just written.
/// Unchanged: the other three kernels. The sums are still written, because step 4 needs all of them and step 3 the
/// last.
/// Equation:
///
///   b_t = max(g_s / ln 2, -40) + ... + max(g_t / ln 2, -40)          s: the sub-chunk's first position, e: its last
///   q_g = q 2^b scale,  k_g = k 2^(b_e - b)
///
/// Shapes: q, k, q_g, k_g [B, H, L, Dk] bf16; g and sums, which are b, [B, H, L, Dk] fp32.
/// Thread mapping: as in steps 1 and 2, grid (NK, R, B H) with one thread per column of a sub-chunk.
/// Resources: 80 registers per thread, 48 of them for a column of g, q and k; no shared memory.
/// Work: as in `five_steps`.
/// Bytes: 4 Dk fewer per position.
/// Bound by, Requires: as `five_steps`.
/// Weakness: the other three launches and their bytes. `combine_fused` lets the walk write o itself.
/// Sources: as `five_steps`.

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/sub_chunk.cuh"
#include "common/device/launch.cuh"
#include "common/parts.hpp"

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
struct Tiles {
  SwizzledTile<kSlice> Q_g, K_g, V;
  float* decay;  ///< [kSlice]

  static constexpr std::size_t kBytes = 3 * kSubChunk * kSlice * sizeof(__nv_bfloat16) + kSlice * sizeof(float);

  __device__ explicit Tiles(__nv_bfloat16* memory)
      : Q_g{memory},
        K_g{Q_g.data + kSubChunk * kSlice},
        V{K_g.data + kSubChunk * kSlice},
        decay(reinterpret_cast<float*>(V.data + kSubChunk * kSlice)) {}
};

/// Grid (NK, NV, B H): the block's tile of the state walks all sub-chunks.
__global__ void __launch_bounds__(kThreads, 6) fused_chunk_kernel(Bf16Arguments a, Intermediates x) {
  const int head = int(blockIdx.z), b = head / a.H, h = head % a.H;
  const int d = int(blockIdx.x) * kSlice, Dk = min(kSlice, a.Dk - d);       // of the slice
  const int j = int(blockIdx.y) * kSlice, columns = min(kSlice, a.Dv - j);  // likewise
  const std::int64_t slice = std::int64_t(blockIdx.x) * gridDim.z + head;
  float* partial = x.partials + slice * a.L * a.Dv + j;

  const Tiles tiles(dynamic_shared<__nv_bfloat16>());

  using Shape = tile::ChunkShape<kSlice, kSlice>;
  Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, d) + j : nullptr;
  tile::load_state<Shape>(S, start, a.initial_state.stride_l, Dk, columns);
  for (int t = 0; t < a.L; t += kSubChunk) {
    const int rows = min(kSubChunk, a.L - t), thread = int(threadIdx.x);
    load_rows(tiles.Q_g, x.q_g.row(b, h, t) + d, a.Dk, rows, Dk);
    load_rows(tiles.K_g, x.k_g.row(b, h, t) + d, a.Dk, rows, Dk);
    load_rows(tiles.V, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
    if (thread < kSlice) {
      tiles.decay[thread] = thread < Dk ? exp2f(load_global(x.sums.row(b, h, t + rows - 1) + d + thread)) : 0.0f;
    }
    __syncthreads();
    Output O = {};
    add_from_state<Shape>(O, tiles.Q_g, S);
    for_each_pair(O, rows, columns, [&](int row, int column, const float* two) {
      store_global(reinterpret_cast<float2*>(partial + std::int64_t(t + row) * a.Dv + column),
                   make_float2(two[0], two[1]));
    });
    tile::decay_rows<Shape>(S, [&](int row) { return *reinterpret_cast<const float2*>(tiles.decay + row); });
    update_state<Shape>(S, tiles.K_g, tiles.V);
    __syncthreads();
  }
  if (a.final_state.data) {
    tile::store_state<Shape>(a.final_state.row(b, h, d) + j, S, a.final_state.stride_l, Dk, columns);
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

/// Grid (NV, R, B H).
__global__ void __launch_bounds__(kThreads) combine_kernel(Bf16Arguments a, Intermediates x) {
  const BlockSubChunk w(a);
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

constexpr std::size_t kTileBytes = kSubChunk * kSlice * sizeof(__nv_bfloat16);
constexpr std::size_t kSumBytes = SumTile<kSlice>::kElements * sizeof(float);
constexpr std::size_t kScoreBytes = ScoreTile::kElements * sizeof(__nv_bfloat16);

}  // namespace

void prepare_fused(const Bf16Arguments& a) {
  const Intermediates x = intermediates(a, true, true);
  const unsigned NK = unsigned(slices(a.Dk)), NV = unsigned(slices(a.Dv)), R = unsigned(sub_chunks(a.L));
  const unsigned heads = unsigned(a.B * a.H);
  launch(prepare_kernel, {dim3(NK, R, heads), kSlice}, a, x);
  end_part("prepare");
  launch(fused_chunk_kernel, {dim3(NK, NV, heads), kThreads, Tiles::kBytes}, a, x);
  end_part("fused_chunk");
  launch(inner_chunk_kernel, {dim3(NK, R, heads), kThreads, 2 * kTileBytes + kSumBytes}, a, x);
  end_part("inner_chunk");
  launch(combine_kernel, {dim3(NV, R, heads), kThreads, kTileBytes + kScoreBytes}, a, x);
  end_part("combine");
}

}  // namespace tutorial::fused_gla
