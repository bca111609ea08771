/// @file
/// Stage 4, `atomic`: the first kernel. Thousands of threads, one state, and a price for sharing it.
///
/// Idea: the rows of S meet only in the sum o_t = sum_d q_td S_d. So a block takes 8 of the Dk rows of one
/// (batch, head) and walks the whole sequence with them; what it finds for o_t is a part of the sum, and an atomic add
/// puts the parts together in global memory.
/// Mends: stage 3 has as many lanes as cores. Same: the recurrence, step by step.
///
///   S_d += k_td v_t          d: the block's 8 rows          S [8, Dv] in shared memory
///   o_t += sum_d q_td S_d    atomically; o starts at zero
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv], fp32 in global memory.
/// Who does what: a small kernel writes zeros into o. Then block (b h, r) has rows 8 r to 8 r + 7, and thread j
/// value column j of each of them, so S needs no barrier: no thread ever looks at another's column. q, k and v are
/// read from global memory as they are needed, q and k by all threads at the same address, which the hardware turns
/// into one access.
/// Resources: 32 Dv bytes of shared memory. Work: 2 Dk Dv multiply-adds a step.
/// Bytes: q and k once, but v and the atomic read-modify-writes of o once for each of the ceil(Dk / 8) blocks of a
/// head.
/// Limit: the latency of a load that every step waits for, and the atomics, L Dv ceil(Dk / 8) of them a head.
/// Needs: Dv <= 1024, the most threads a block may have.
/// Weakness: the order of the atomic adds is not fixed, so two runs differ in the last digits; o is touched Dk / 8
/// times; and S is in shared memory though nobody shares it, so that every multiply-add reads or writes it there.
/// Stage 5 gives a block all rows, in registers, and the atomics are gone.
/// Source: the idea of the fallback kernel of fast-transformers (arXiv 2006.16236, section 3.4).

#include <cuda_runtime.h>

#include <climits>

#include "01_linear_attention/linear_attention.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::causal_dot_product {
namespace {

constexpr int kRows = 8;  // rows of S a block

/// Grid (B H, up to 1024).
__global__ void zero_kernel(View<float> o, int H, int L, int Dv) {
  const int b = int(blockIdx.x) / H, h = int(blockIdx.x) % H;
  for (int t = int(blockIdx.y); t < L; t += int(gridDim.y)) {
    for (int j = int(threadIdx.x); j < Dv; j += int(blockDim.x)) store_global(&o.row(b, h, t)[j], 0.0f);
  }
}

/// Grid (B H, ceil(Dk / kRows)).
__global__ void atomic_kernel(View<const float> q, View<const float> k, View<const float> v, View<float> o, int H,
                              int L, int Dk) {
  float* S = dynamic_shared<float>();  // [kRows, Dv]
  const int b = int(blockIdx.x) / H, h = int(blockIdx.x) % H;
  const int d0 = int(blockIdx.y) * kRows;
  const int rows = min(kRows, Dk - d0);
  const int j = int(threadIdx.x), Dv = int(blockDim.x);

  for (int d = 0; d < rows; ++d) S[d * Dv + j] = 0;
  for (int t = 0; t < L; ++t) {
    const float* q_t = q.row(b, h, t) + d0;
    const float* k_t = k.row(b, h, t) + d0;
    const float v_tj = load_global(&v.row(b, h, t)[j]);
    float part = 0;
    for (int d = 0; d < rows; ++d) {
      S[d * Dv + j] += load_global(&k_t[d]) * v_tj;
      part += load_global(&q_t[d]) * S[d * Dv + j];
    }
    atomicAdd(&o.row(b, h, t)[j], part);
  }
}

}  // namespace

void atomic(const Arguments& a) {
  const auto heads = unsigned(a.B * a.H);
  launch(zero_kernel, {dim3(heads, unsigned(min(a.L, 1024))), 128}, a.o, a.H, a.L, a.Dv);
  const auto row_groups = unsigned((a.Dk - 1) / kRows + 1);
  launch(atomic_kernel, {dim3(heads, row_groups), unsigned(a.Dv), kRows * unsigned(a.Dv) * sizeof(float)}, a.q, a.k,
         a.v, a.o, a.H, a.L, a.Dk);
}

std::string atomic_limits(const Arguments& a) {
  if (a.Dv > 1024) return "Dv > 1024: a thread a value column, and a block has 1024 threads at most";
  if ((a.Dk - 1) / kRows + 1 > 65535) return "Dk > 8 x 65535: the grid's second dimension";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: the grid's first dimension";
  return "";
}

}  // namespace tutorial::causal_dot_product
