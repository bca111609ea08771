/// @file
/// `gpu`: gla's dispatch on the same table, in device memory.
///
/// Idea: the table of `chunkwise` works for every stage of gla. On the GPU a small kernel writes it (table.cuh).
/// Grows out of: 1_chunkwise.cpp; port to the GPU: the table is written by a kernel, and gla's dispatch reads it.
/// Improves on: `chunkwise` has one CPU thread per head.
/// Unchanged: the table.
/// Equation:
///
///     g_td = log(1 - 2^(-5-h))        a table [H, Dk], seen as [B, H, L, Dk] with strides 0, Dk, 0, 1
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; fp32 in device memory.
/// Thread mapping: block h of the first kernel writes row h of the table; the rest is that of gla.
/// Work, Bound by, Requires: as gla's `dispatch` in fp32.
/// Bytes: q, k, v and o once; the table from the second-level cache.
/// Weakness: that of `chunkwise`; and fp32 leaves the tensor cores idle.
/// Sources: arXiv 2307.08621, equation 8; arXiv 2312.06635, section 4.2.

#include <cuda_runtime.h>

#include "03_gla/retention/table.cuh"

namespace tutorial::retention {

void gpu(const FloatArguments& a) {
  gla::dispatch(with_table(a));
}

std::string gpu_unsupported(const FloatArguments& a) {
  return gla::dispatch_unsupported(gated(a, nullptr));
}

std::string gpu_note(const FloatArguments& a) {
  return gla::dispatch_note(gated(a, nullptr));
}

std::int64_t gpu_memory(const FloatArguments& a) {
  return gla::dispatch_memory(gated(a, nullptr)) + table_bytes(a.H, a.Dk);
}

}  // namespace tutorial::retention
