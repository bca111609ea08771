/// @file
/// `lmha`: one kernel source for forward and backward.
///
/// Idea: the walks are products like any other, so whatever makes causal_dot_product fast makes its gradients fast. The
/// states of the three walks stay in registers, a column per thread, and the next tile is loaded during this one.
/// Forward and backward share the kernel; the strides of the views set the direction of time.
/// Grows out of: 3_atomic.cu
/// Improves on: `atomic` adds to each element of a gradient Dv / 8 or Dk / 8 times, and waits for the loads of every
/// position.
/// Unchanged: three walks, one kernel each.
/// Equation: as `atomic`
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv], fp32 in global memory; tiles of three of them in shared
/// memory, twice.
/// Thread mapping: block (b, h) of each kernel has one thread per column: Dk columns of S^T for dq, Dk columns of R^T
/// for dk, Dv columns of R for dv.
/// Resources: as causal_dot_product's `lmha`.
/// Work: 12 Dk Dv operations per head and position.
/// Bytes: each walk reads three tensors and writes one: 12 tensors, of which 7 are different.
/// Bound by: the latency of shared memory, as in the forward stage, three times.
/// Requires: Dk, Dv <= 64: each of the two widths is the length of a column in one of the walks.
/// Weakness: the walks are independent, but each kernel waits for the one before. With B H blocks, most of the
/// multiprocessors have no work.
/// Sources: fast-transformers' `lmha` kernel also runs its own loop backwards for the gradients, by a template
/// parameter.

#include <cuda_runtime.h>

#include <climits>

#include "01_linear_attention/causal_dot_product_backward/walks.hpp"

namespace tutorial::causal_dot_product_backward {

void lmha(const Arguments& a) {
  for (const Product& walk : walks(a)) causal_dot_product::lmha(walk);
}

std::string lmha_unsupported(const Arguments& a) {
  if (a.Dk > 64 || a.Dv > 64)
    return "Dk or Dv > 64: a column of the state would not fit into the registers of one thread";
  if (a.L > INT_MAX - 64) return "L > 2^31 - 65: positions are counted in int";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: the grid's first dimension";
  return "";
}

}  // namespace tutorial::causal_dot_product_backward
