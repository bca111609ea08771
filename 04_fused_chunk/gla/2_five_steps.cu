/// @file
/// Stage 2, `five_steps`: how the first release of flash-linear-attention ran gla, step by step.
///
/// Idea: windows of BT = 16 positions are so short that the decays within them can be put into the factors, as in
/// chapter 03's parallel form, without anything overflowing: q grows weaker from the window's start, k towards its end.
/// Then the walk over a sequence is two products a window on tensor cores, and the pairs within a window are left to a
/// kernel of their own. Four kernels and an addition, everything between them in device memory:
///
///   g [B,H,L,Dk] ---> 1 decay_cumsum (NK, N, B H) ---> sums [B,H,L,Dk] fp32
///                                                        |        |
///   q, k [B,H,L,Dk] -----+------------------> 2 prepare_qg_kg     |
///                        |                       (NK, N, B H)     |
///                        |             q_g, k_g [B,H,L,Dk] bf16   | the windows' last rows
///                        |                               |        |
///   v [B,H,L,Dv], S_0 ---|-------------------> 3 fused_chunk (NK, NV, B H): walks the N windows
///        |               |                               |
///        |               |                   partials [NK,B,H,L,Dv] fp32, final state
///        |               |                               |
///        |       4 inner_chunk (NK, N, B H) <-- sums     |
///        |               |                               |
///        |       scores [NK,B,H,N,16,16] bf16            |
///        |               |                               |
///        +-------> 5 combine (NV, N, B H) <--------------+ ---> o [B,H,L,Dv]
///
/// Mends: nothing: this is where the fusing begins. Same: stage 1's result. For position t of the window that begins
/// at s and ends at e:
///
///   1  sums_t = max(g_s / ln 2, -40) + ... + max(g_t / ln 2, -40)               element by element
///   2  q_g = q 2^sums scale,  k_g = k 2^(sums_e - sums)                         no factor above 1
///   3  partial = q_g S,  S = diag(2^sums_e) S + k_g^T v                         for each slice of 64 of Dk
///   4  P_ti = scale sum_d q_td k_id 2^(sums_td - sums_id), i <= t               likewise
///   5  o = sum of partials + (sum of P) v
///
/// Shapes: q, k [B, H, L, Dk], v, o [B, H, L, Dv] bf16; g [B, H, L, Dk], S_0 and final_state [B, H, Dk, Dv] fp32. In
/// the picture also what lies in memory between the kernels, and the grids: N = ceil(L / 16) windows, NK =
/// ceil(Dk / 64) slices of the keys' width, NV = ceil(Dv / 64) of the values'.
/// Who does what: steps 1, 2: a block of 64 threads a window, a thread a column of it. 3: a block of four warps has a
/// tile [64, 64] of the state, each warp 16 columns, in registers for the whole sequence (window.cuh); its columns of
/// v, its slice of q_g and k_g. 4: a thread a pair of positions. 5: a block a window and 64 columns, on tensor cores.
/// Resources: step 3: 32 registers a thread for S, and 6400 bytes of shared memory for a window; step 4: 8448 bytes,
/// step 5: 2816; steps 1 and 2: none.
/// Precision: q_g, k_g, P, and S in the product with q_g are bf16, sums of gates, partials and S fp32.
/// Operations, a position: 4 Dk Dv and 2 * 16 Dv on tensor cores; 9.5 exponentials for each gate, 7.5 of them for the
/// pairs. Bytes: those of the picture: what has two arrows is read twice; q_g, k_g and the scores once for each slice
/// of Dv, v by step 3 once for each of Dk.
/// Limit: the walk's latency. A window is 16 positions and four mma deep, and the next cannot begin before: L / 16
/// trips to memory in line. Else the bytes.
/// Needs: Dk and Dv multiples of 16, Dk <= 256, Dv <= 512; rows aligned to 16 bytes; L <= 16 * 65535, B H <= 65535.
/// And where a gate is below 2^-40, a state of less than 2^32 times what k^T v adds to it: 2^-40 of it is left.
/// Weakness: the bytes between the kernels. Step 2 reads what step 1 has just written; stage 3 makes one of them.
/// Source: flash-linear-attention, first release, `fused_chunk_gla`; arXiv 2312.06635, section 4.

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/window.cuh"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "common/parts.hpp"

namespace tutorial::fused_gla {
namespace {

/// Grid (NK, N, B H), a thread a column.
__global__ void __launch_bounds__(kSlice) decay_cumsum_kernel(HalfArguments a, View<float> sums) {
  const Window w(a);
  const int d = int(blockIdx.x) * kSlice + int(threadIdx.x);
  if (d >= a.Dk) return;
  float g[kWindow];
  load_column(g, a.g.row(w.b, w.h, w.t) + d, a.g.stride_l, w.rows);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kWindow; ++i) {
    sum += base2(g[i]);
    if (i < w.rows) store_global(sums.row(w.b, w.h, w.t + i) + d, sum);
  }
}

/// Grid (NK, N, B H), a thread a column.
__global__ void __launch_bounds__(kSlice, 8) prepare_qg_kg_kernel(HalfArguments a, Intermediates x) {
  const Window w(a);
  const int d = int(blockIdx.x) * kSlice + int(threadIdx.x);
  if (d >= a.Dk) return;
  float sums[kWindow], q[kWindow], k[kWindow], last = 0;
  load_column(sums, x.sums.row(w.b, w.h, w.t) + d, x.sums.stride_l, w.rows);
  load_column(q, a.q.row(w.b, w.h, w.t) + d, a.q.stride_l, w.rows);
  load_column(k, a.k.row(w.b, w.h, w.t) + d, a.k.stride_l, w.rows);
#pragma unroll
  for (int i = 0; i < kWindow; ++i) last = i < w.rows ? sums[i] : last;
#pragma unroll
  for (int i = 0; i < kWindow; ++i) {
    if (i >= w.rows) continue;
    store_global(x.q_g.row(w.b, w.h, w.t + i) + d, __float2bfloat16(q[i] * exp2f(sums[i]) * a.scale));
    store_global(x.k_g.row(w.b, w.h, w.t + i) + d, __float2bfloat16(k[i] * exp2f(last - sums[i])));
  }
}

/// Grid (NK, NV, B H): the block's tile of the state walks all windows.
__global__ void __launch_bounds__(kThreads, 6) fused_chunk_kernel(HalfArguments a, Intermediates x) {
  const int head = int(blockIdx.z), b = head / a.H, h = head % a.H;
  const int d = int(blockIdx.x) * kSlice, Dk = min(kSlice, a.Dk - d);       // of the slice
  const int j = int(blockIdx.y) * kSlice, columns = min(kSlice, a.Dv - j);  // likewise
  const std::int64_t slice = std::int64_t(blockIdx.x) * gridDim.z + head;
  float* partial = x.partials + slice * a.L * a.Dv + j;

  auto* memory = dynamic_shared<__nv_bfloat16>();
  const SwizzledTile<kSlice> Q{memory}, K{memory + kWindow * kSlice}, V{memory + 2 * kWindow * kSlice};
  auto* decay = reinterpret_cast<float*>(memory + 3 * kWindow * kSlice);

  using Shape = WindowShape<kSlice>;
  Shape::State S;
  const float* start = a.initial_state.data ? a.initial_state.row(b, h, d) + j : nullptr;
  load_state<Shape>(S, start, a.initial_state.stride_l, Dk, columns);
  for (int t = 0; t < a.L; t += kWindow) {
    const int rows = min(kWindow, a.L - t), thread = int(threadIdx.x);
    load_window(Q, x.q_g.row(b, h, t) + d, a.Dk, rows, Dk);
    load_window(K, x.k_g.row(b, h, t) + d, a.Dk, rows, Dk);
    load_window(V, a.v.row(b, h, t) + j, a.v.stride_l, rows, columns);
    if (thread < kSlice) {
      decay[thread] = thread < Dk ? exp2f(load_global(x.sums.row(b, h, t + rows - 1) + d + thread)) : 0.0f;
    }
    __syncthreads();
    Output O = {};
    add_from_state<kSlice>(O, Q, S);
    for_each_pair(O, rows, columns, [&](int row, int column, const float* two) {
      store_global(reinterpret_cast<float2*>(partial + std::int64_t(t + row) * a.Dv + column),
                   make_float2(two[0], two[1]));
    });
    decay_state<kSlice>(S, decay);
    update_state<kSlice>(S, K, V);
    __syncthreads();
  }
  if (a.final_state.data) store_state<Shape>(a.final_state.row(b, h, d) + j, S, a.final_state.stride_l, Dk, columns);
}

/// The block's 16 x 16 scores, of slice x, in memory.
__device__ __forceinline__ __nv_bfloat16* scores_of(const Intermediates& x, unsigned slice) {
  const std::int64_t window = (std::int64_t(slice) * gridDim.z + blockIdx.z) * gridDim.y + blockIdx.y;
  return x.scores + window * kWindow * kWindow;
}

/// Grid (NK, N, B H).
__global__ void __launch_bounds__(kThreads) inner_chunk_kernel(HalfArguments a, Intermediates x) {
  const Window w(a);
  const int d = int(blockIdx.x) * kSlice, Dk = min(kSlice, a.Dk - d);
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const SwizzledTile<kSlice> Q{memory}, K{memory + kWindow * kSlice};
  const SumTile<kSlice> sums{reinterpret_cast<float*>(memory + 2 * kWindow * kSlice)};
  load_window(Q, a.q.row(w.b, w.h, w.t) + d, a.q.stride_l, w.rows, Dk);
  load_window(K, a.k.row(w.b, w.h, w.t) + d, a.k.stride_l, w.rows, Dk);
  load_window(sums, x.sums.row(w.b, w.h, w.t) + d, a.Dk, w.rows, Dk);
  __syncthreads();
  __nv_bfloat16* P = scores_of(x, blockIdx.x);
  window_scores(Q, K, sums, a.scale,
                [&](int t, int i, float score) { store_global(P + t * kWindow + i, __float2bfloat16(score)); });
}

/// Grid (NV, N, B H).
__global__ void __launch_bounds__(kThreads) combine_kernel(HalfArguments a, Intermediates x, int NK) {
  const Window w(a);
  const int j = int(blockIdx.x) * kSlice, columns = min(kSlice, a.Dv - j);
  auto* memory = dynamic_shared<__nv_bfloat16>();
  const SwizzledTile<kSlice> V{memory};
  const ScoreTile P{memory + kWindow * kSlice};
  load_window(V, a.v.row(w.b, w.h, w.t) + j, a.v.stride_l, w.rows, columns);
  const int row = int(threadIdx.x) / 8, column = int(threadIdx.x) % 8 * 2;
  float2 score{};
  for (int slice = 0; slice < NK; ++slice) {
    const __nv_bfloat16* two = scores_of(x, unsigned(slice)) + row * kWindow + column;
    const float2 of_slice = unpack(load_global(reinterpret_cast<const std::uint32_t*>(two)));
    score.x += of_slice.x;
    score.y += of_slice.y;
  }
  *reinterpret_cast<std::uint32_t*>(P.at(row, column)) = pack(score.x, score.y);
  __syncthreads();

  Output O = {};
  add_from_scores(O, P, V);
  for_each_pair(O, w.rows, columns, [&](int i, int c, const float* two) {
    float2 sum = make_float2(two[0], two[1]);
    for (int slice = 0; slice < NK; ++slice) {
      const std::int64_t position = (std::int64_t(slice) * gridDim.z + blockIdx.z) * a.L + w.t + i;
      const float2 partial = load_global(reinterpret_cast<const float2*>(x.partials + position * a.Dv + j + c));
      sum.x += partial.x;
      sum.y += partial.y;
    }
    store_global(reinterpret_cast<std::uint32_t*>(a.o.row(w.b, w.h, w.t + i) + j + c), pack(sum.x, sum.y));
  });
}

constexpr std::size_t kTileBytes = kWindow * kSlice * sizeof(__nv_bfloat16);

/// The grid of a kernel that has the windows for themselves.
dim3 window_grid(const HalfArguments& a, int slices_of_width) {
  return dim3(unsigned(slices_of_width), unsigned(windows(a.L)), unsigned(a.B * a.H));
}

// Elements of tensors that have one for each position, or for each window, of all heads.
std::int64_t positions(const HalfArguments& a) {
  return std::int64_t(a.B) * a.H * a.L;
}
std::int64_t window_count(const HalfArguments& a) {
  return std::int64_t(a.B) * a.H * windows(a.L);
}
std::int64_t partial_bytes(const HalfArguments& a) {
  return 4 * positions(a) * a.Dv * slices(a.Dk);
}
std::int64_t score_bytes(const HalfArguments& a) {
  return 2 * window_count(a) * kWindow * kWindow * slices(a.Dk);
}

}  // namespace

void decay_cumsum(const HalfArguments& a, const Intermediates& x) {
  launch(decay_cumsum_kernel, {window_grid(a, slices(a.Dk)), kSlice}, a, x.sums);
}

void prepare_qg_kg(const HalfArguments& a, const Intermediates& x) {
  launch(prepare_qg_kg_kernel, {window_grid(a, slices(a.Dk)), kSlice}, a, x);
}

void fused_chunk(const HalfArguments& a, const Intermediates& x) {
  const dim3 grid(unsigned(slices(a.Dk)), unsigned(slices(a.Dv)), unsigned(a.B * a.H));
  launch(fused_chunk_kernel, {grid, kThreads, 3 * kTileBytes + kSlice * sizeof(float)}, a, x);
}

void inner_chunk(const HalfArguments& a, const Intermediates& x) {
  constexpr std::size_t kSumBytes = SumTile<kSlice>::kElements * sizeof(float);
  launch(inner_chunk_kernel, {window_grid(a, slices(a.Dk)), kThreads, 2 * kTileBytes + kSumBytes}, a, x);
}

void combine(const HalfArguments& a, const Intermediates& x) {
  constexpr std::size_t kScoreBytes = ScoreTile::kElements * sizeof(__nv_bfloat16);
  launch(combine_kernel, {window_grid(a, slices(a.Dv)), kThreads, kTileBytes + kScoreBytes}, a, x, slices(a.Dk));
}

void five_steps(const HalfArguments& a) {
  const Intermediates x = intermediates(a);
  decay_cumsum(a, x);
  end_part("decay_cumsum");
  prepare_qg_kg(a, x);
  end_part("prepare_qg_kg");
  fused_chunk(a, x);
  end_part("fused_chunk");
  inner_chunk(a, x);
  end_part("inner_chunk");
  combine(a, x);
  end_part("combine");
}

Intermediates prepared(const HalfArguments& a) {
  const auto of_keys = [&](auto* data) { return packed(data, a.H, a.L, a.Dk); };
  const auto count = std::size_t(positions(a)) * std::size_t(a.Dk);
  return {of_keys(workspace<float>("fused_gla: sums", count)),
          of_keys(workspace<__nv_bfloat16>("fused_gla: q_g", count)),
          of_keys(workspace<__nv_bfloat16>("fused_gla: k_g", count)), nullptr, nullptr};
}

Intermediates intermediates(const HalfArguments& a) {
  Intermediates x = prepared(a);
  x.partials = workspace<float>("fused_gla: partials", std::size_t(partial_bytes(a)) / sizeof(float));
  x.scores = workspace<__nv_bfloat16>("fused_gla: scores", std::size_t(score_bytes(a)) / sizeof(__nv_bfloat16));
  return x;
}

std::int64_t five_steps_memory(const HalfArguments& a) {
  return prepared_bytes(a) + partial_bytes(a) + score_bytes(a);
}

std::int64_t decay_cumsum_moved(const HalfArguments& a) {
  return (4 + 4) * positions(a) * a.Dk;  // g; sums
}

std::int64_t prepare_qg_kg_moved(const HalfArguments& a) {
  return (4 + 2 + 2 + 2 + 2) * positions(a) * a.Dk;  // sums, q, k; q_g, k_g
}

std::int64_t fused_chunk_moved(const HalfArguments& a) {
  const std::int64_t keys = ((2 + 2) * positions(a) + 4 * window_count(a)) * a.Dk * slices(a.Dv);  // last rows of sums
  const std::int64_t values = 2 * positions(a) * a.Dv * slices(a.Dk);
  return keys + values + partial_bytes(a) + state_bytes(a);
}

std::int64_t inner_chunk_moved(const HalfArguments& a) {
  return (2 + 2 + 4) * positions(a) * a.Dk + score_bytes(a);
}

std::int64_t combine_moved(const HalfArguments& a) {
  return score_bytes(a) * slices(a.Dv) + partial_bytes(a) + (2 + 2) * positions(a) * a.Dv;  // v; o
}

std::int64_t five_steps_moved(const HalfArguments& a) {
  return decay_cumsum_moved(a) + prepare_qg_kg_moved(a) + fused_chunk_moved(a) + inner_chunk_moved(a) +
         combine_moved(a);
}

}  // namespace tutorial::fused_gla
