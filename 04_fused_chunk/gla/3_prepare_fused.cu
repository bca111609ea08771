/// @file
/// Stage 3, `prepare_fused`: the running sums are used where they are made.
///
/// Idea: a thread that walks down a column of 16 gates has all of its sums in registers when it gets to the end, and
/// knows the last of them. It can decay q and k on the spot.
/// Mends: in stage 2 step 2 waits for a launch and reads back from memory what step 1 has just written. Same: the other
/// three kernels; the sums are still written, because step 4 needs all and step 3 the last of them.
///
///   sums_t = max(g_s / ln 2, -40) + ... + max(g_t / ln 2, -40)       s: the window's start, e: its end
///   q_g = q 2^sums scale,  k_g = k 2^(sums_e - sums)
///
/// Shapes: q, k, q_g, k_g [B, H, L, Dk] bf16, g, sums [B, H, L, Dk] fp32.
/// Who does what: as in steps 1 and 2: grid (NK, N, B H), a thread a column of a window, 16 sums in its registers.
/// Resources: 80 registers a thread, 48 of them a column of g, q and k; no shared memory.
/// Operations: as in stage 2. Bytes: 4 Dk a position less.
/// Limit, needs: as stage 2. Weakness: the launches and the bytes of steps 3 to 5; stage 4 makes one walk of them.
/// Source: as stage 2.

#include <cuda_runtime.h>

#include "04_fused_chunk/gla/window.cuh"
#include "common/device/launch.cuh"
#include "common/parts.hpp"

namespace tutorial::fused_gla {
namespace {

/// Grid (NK, N, B H), a thread a column.
__global__ void __launch_bounds__(kSlice) prepare_kernel(HalfArguments a, Intermediates x) {
  const Window w(a);
  const int d = int(blockIdx.x) * kSlice + int(threadIdx.x);
  if (d >= a.Dk) return;
  float sums[kWindow], q[kWindow], k[kWindow], last = 0;
  load_column(sums, a.g.row(w.b, w.h, w.t) + d, a.g.stride_l, w.rows);
  load_column(q, a.q.row(w.b, w.h, w.t) + d, a.q.stride_l, w.rows);
  load_column(k, a.k.row(w.b, w.h, w.t) + d, a.k.stride_l, w.rows);
#pragma unroll
  for (float& sum : sums) {  // of gates of 1 below the last row, which change nothing
    last += base2(sum);
    sum = last;
  }
#pragma unroll
  for (int i = 0; i < kWindow; ++i) {
    if (i >= w.rows) continue;
    store_global(x.sums.row(w.b, w.h, w.t + i) + d, sums[i]);
    store_global(x.q_g.row(w.b, w.h, w.t + i) + d, __float2bfloat16(q[i] * exp2f(sums[i]) * a.scale));
    store_global(x.k_g.row(w.b, w.h, w.t + i) + d, __float2bfloat16(k[i] * exp2f(last - sums[i])));
  }
}

}  // namespace

void prepare(const HalfArguments& a, const Intermediates& x) {
  const dim3 grid(unsigned(slices(a.Dk)), unsigned(windows(a.L)), unsigned(a.B * a.H));
  launch(prepare_kernel, {grid, kSlice}, a, x);
}

void prepare_fused(const HalfArguments& a) {
  const Intermediates x = intermediates(a);
  prepare(a, x);
  end_part("prepare");
  fused_chunk(a, x);
  end_part("fused_chunk");
  inner_chunk(a, x);
  end_part("inner_chunk");
  combine(a, x);
  end_part("combine");
}

std::int64_t prepare_moved(const HalfArguments& a) {
  return (4 + 2 + 2 + 4 + 2 + 2) * std::int64_t(a.B) * a.H * a.L * a.Dk;  // g, q, k; sums, q_g, k_g
}

std::int64_t prepare_fused_moved(const HalfArguments& a) {
  return prepare_moved(a) + fused_chunk_moved(a) + inner_chunk_moved(a) + combine_moved(a);
}

}  // namespace tutorial::fused_gla
