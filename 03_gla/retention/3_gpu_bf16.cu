/// @file
/// `gpu_bf16`: gla's dispatch on the same table, with q, k, v and o in bf16.
///
/// Idea: gla's dispatch also supports bf16 and then runs on tensor cores. The table stays fp32.
/// Grows out of: 2_gpu.cu
/// Improves on: `gpu` leaves the tensor cores idle.
/// Unchanged: the table and the kernel that writes it.
/// Equation:
///
///     g_td = log(1 - 2^(-5-h))        a table [H, Dk], seen as [B, H, L, Dk] with strides 0, Dk, 0, 1
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv] in bf16; S_0 and final_state [B, H, Dk, Dv] in fp32; in device
/// memory.
/// Thread mapping: block h of the first kernel writes row h of the table; the rest is that of gla.
/// Work, Bound by, Requires: as gla's `dispatch` in bf16.
/// Bytes: q, k, v and o once; the table from the second-level cache.
/// Weakness: that of `chunkwise`.
/// Sources: arXiv 2307.08621, equation 8; arXiv 2312.06635, section 4.2.

#include <cuda_runtime.h>

#include "03_gla/retention/table.cuh"

namespace tutorial::retention {

void gpu_bf16(const Bf16Arguments& a) {
  gla::dispatch(with_table(a));
}

std::string gpu_bf16_unsupported(const Bf16Arguments& a) {
  return gla::dispatch_unsupported(gated(a, nullptr));
}

std::string gpu_bf16_note(const Bf16Arguments& a) {
  return gla::dispatch_note(gated(a, nullptr));
}

std::int64_t gpu_bf16_memory(const Bf16Arguments& a) {
  return gla::dispatch_memory(gated(a, nullptr)) + table_bytes(a.H, a.Dk);
}

}  // namespace tutorial::retention
