/// @file
/// `atomic`: the first kernel. It has thousands of threads, and several blocks share the state of a head.
///
/// Idea: the rows of S are combined only in the sum o_t = sum_d q_t[d] S[d, :]. So each block takes 8 of the Dk rows of
/// one (batch, head) and walks the whole sequence with them. Its result for o_t is a part of the sum, and atomic adds
/// combine the parts in device memory.
/// Grows out of: 2_recurrent.cpp; port to the GPU: the loop over heads becomes a grid, the loop over columns threads
/// Improves on: `recurrent` and `recurrent_eigen` have no more lanes than the cores of a CPU.
/// Unchanged: the recurrence, one position after the other.
/// Equation: S[d, :] += k_t[d] v_t and o_t += sum_d q_t[d] S[d, :] over the block's 8 rows d; o starts at zero
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv], fp32 in device memory; S [8, Dv] in shared memory.
/// Thread mapping: a small kernel writes zeros into o. Then block (b h, r) has rows 8 r to 8 r + 7 of S, and thread j
/// has value column j of each of them. No thread reads another thread's column, so there is no barrier. q, k and v are
/// read from device memory as they are needed. All threads read q and k at the same address, which the hardware turns
/// into one access.
/// Resources: 32 Dv bytes of shared memory.
/// Work: 4 Dk Dv operations per head and position.
/// Bytes: q and k once; v and the atomic read-modify-writes of o once for each of the ceil(Dk / 8) blocks of a head.
/// Bound by: the latency of a load, which every position waits for, and the L Dv ceil(Dk / 8) atomic adds per head.
/// Requires: Dv <= 1024, the most threads that a block may have.
/// Weakness: the order of the atomic adds is not fixed, so two runs differ in the last digits. Each element of o is
/// touched ceil(Dk / 8) times. S is in shared memory although no thread shares it, and every multiply-add reads or
/// writes it there.
/// Sources: the idea is that of the fallback kernel of fast-transformers (arXiv 2006.16236, section 3.4).

#include <cuda_runtime.h>

#include "01_linear_attention/causal_dot_product.hpp"
#include "common/ceil_div.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::causal_dot_product {
namespace {

constexpr int kRows = 8;  // of S, per block

/// Grid (B H, up to 1024).
__global__ void zero_kernel(Arguments a) {
  const int b = int(blockIdx.x) / a.H, h = int(blockIdx.x) % a.H;
  for (int t = int(blockIdx.y); t < a.L; t += int(gridDim.y)) {
    for (int j = int(threadIdx.x); j < a.Dv; j += int(blockDim.x)) store_global(&a.o.row(b, h, t)[j], 0.0f);
  }
}

/// Grid (B H, ceil(Dk / kRows)).
__global__ void atomic_kernel(Arguments a) {
  float* S = dynamic_shared<float>();  // [kRows, Dv]
  const int b = int(blockIdx.x) / a.H, h = int(blockIdx.x) % a.H;
  const int j = int(threadIdx.x);  // this thread's column
  const int first_row = int(blockIdx.y) * kRows, rows = min(kRows, a.Dk - first_row);

  for (int d = 0; d < rows; ++d) S[d * a.Dv + j] = 0;
  for (int t = 0; t < a.L; ++t) {
    const float* q_t = a.q.row(b, h, t) + first_row;
    const float* k_t = a.k.row(b, h, t) + first_row;
    const float v_tj = load_global(&a.v.row(b, h, t)[j]);
    float o_tj = 0;
    for (int d = 0; d < rows; ++d) {
      S[d * a.Dv + j] += load_global(&k_t[d]) * v_tj;
      o_tj += load_global(&q_t[d]) * S[d * a.Dv + j];
    }
    atomicAdd(&a.o.row(b, h, t)[j], o_tj);  // a part: the head's other blocks add theirs
  }
}

}  // namespace

void atomic(const Arguments& a) {
  const auto heads = unsigned(a.B * a.H);
  launch(zero_kernel, {dim3(heads, unsigned(min(a.L, 1024))), 128}, a);
  launch(atomic_kernel,
         {dim3(heads, unsigned(ceil_div(a.Dk, kRows))), unsigned(a.Dv), kRows * unsigned(a.Dv) * sizeof(float)}, a);
}

}  // namespace tutorial::causal_dot_product
