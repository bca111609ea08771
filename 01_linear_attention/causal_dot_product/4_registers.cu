/// @file
/// `registers`: the whole state in registers, and no atomics.
///
/// Idea: a block owns all of S of one (batch, head), and each thread one column of it, in registers. S then never
/// leaves the registers, each element of o is written once, and only q, k and v are loaded.
/// Grows out of: 3_atomic.cu
/// Improves on: `atomic` adds ceil(Dk / 8) times to every element of o, and keeps S in shared memory.
/// Unchanged: the recurrence, one position after the other.
/// Equation: S[:, j] += k_t^T v_t[j], then o_t[j] = q_t S[:, j], in thread j
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv], fp32 in device memory; q_t and k_t of one position in shared memory.
/// Thread mapping: block b h has one thread per value column. Every thread needs all of q_t and k_t, so the block
/// brings them into shared memory together, between two barriers: after the first barrier no thread still reads the
/// position before, and after the second one the new position is there. Dk is rounded up to 32 or 64, so that the loops
/// over a column have a length that the compiler knows. Registers have no addresses: an index that is known only at run
/// time would send S to local memory.
/// Resources: Dk registers per thread for S, 64 at most; 8 Dk bytes of shared memory.
/// Work: 4 Dk Dv operations per head and position.
/// Bytes: q, k and v are read once, o is written once. No kernel can move less.
/// Bound by: the latency of device memory. Each position waits 600 to 900 clocks for its loads and computes for some
/// 310.
/// Requires: Dk <= 64: a thread then has at most 64 numbers of the state, which leaves registers for the loads that
/// later stages have under way; Dv <= 128.
/// Weakness: no load is under way while the block computes, and nothing computes while the loads are under way.
/// Sources: the plan is that of NVIDIA's `lmha` kernel for fast-transformers.

#include <cuda_runtime.h>

#include "01_linear_attention/causal_dot_product.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::causal_dot_product {
namespace {

/// Grid B H. The last threads may have no column: they compute on zeros.
/// @tparam kDk Dk rounded up
/// @tparam kThreads Dv rounded up
template <int kDk, int kThreads>
__global__ void __launch_bounds__(kThreads) registers_kernel(Arguments a) {
  __shared__ float4 q_t[kDk / 4], k_t[kDk / 4];
  const int b = int(blockIdx.x) / a.H, h = int(blockIdx.x) % a.H;
  const int j = int(threadIdx.x);

  float4 S[kDk / 4] = {};  // column j
  for (int t = 0; t < a.L; ++t) {
    __syncthreads();  // no thread reads the position before any more
    if (j < kDk) {
      reinterpret_cast<float*>(q_t)[j] = j < a.Dk ? load_global(&a.q.row(b, h, t)[j]) : 0.0f;
      reinterpret_cast<float*>(k_t)[j] = j < a.Dk ? load_global(&a.k.row(b, h, t)[j]) : 0.0f;
    }
    const float v_tj = j < a.Dv ? load_global(&a.v.row(b, h, t)[j]) : 0.0f;
    __syncthreads();  // q_t and k_t are there
    float4 o_tj = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < kDk / 4; ++i) {
      const float4 q = q_t[i], k = k_t[i];
      S[i].x += k.x * v_tj;
      S[i].y += k.y * v_tj;
      S[i].z += k.z * v_tj;
      S[i].w += k.w * v_tj;
      o_tj.x += q.x * S[i].x;
      o_tj.y += q.y * S[i].y;
      o_tj.z += q.z * S[i].z;
      o_tj.w += q.w * S[i].w;
    }
    if (j < a.Dv) store_global(&a.o.row(b, h, t)[j], (o_tj.x + o_tj.y) + (o_tj.z + o_tj.w));
  }
}

template <int kDk>
void launch_width(const Arguments& a) {
  const auto heads = unsigned(a.B * a.H);
  if (a.Dv <= 64) return launch(registers_kernel<kDk, 64>, {heads, 64}, a);
  launch(registers_kernel<kDk, 128>, {heads, 128}, a);
}

}  // namespace

void registers(const Arguments& a) {
  a.Dk <= 32 ? launch_width<32>(a) : launch_width<64>(a);
}

}  // namespace tutorial::causal_dot_product
