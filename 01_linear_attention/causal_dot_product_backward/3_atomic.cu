/// @file
/// `atomic`: the gradients on the GPU, without a new kernel.
///
/// Idea: the walk of `recurrent` from the start is causal_dot_product with other tensors: do_t is the query, v_i the
/// key and k_i the value. With time reversed, both sums of the walk from the end are causal_dot_product, too. A view
/// with a negative stride over time (walks.hpp) reverses it. So the kernel of causal_dot_product's `atomic` computes
/// all three gradients.
/// Grows out of: 2_recurrent.cpp; port to the GPU: the loops are those of causal_dot_product's kernel
/// Improves on: `recurrent` uses one core.
/// Unchanged: two directions, and one position after the other in each.
/// Equation:
///
///   dq_t = sum_{i<=t} (do_t . v_i) k_i
///   dk_i = sum_{t>=i} (v_i . do_t) q_t
///   dv_i = sum_{t>=i} (k_i . q_t) do_t
///
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv], fp32 in global memory; in shared memory 8 rows of S^T
/// [Dv, Dk], of R^T [Dv, Dk] and of R [Dk, Dv], in one kernel each.
/// Thread mapping: as causal_dot_product's `atomic`, with one thread per element of dq, dk and dv in turn.
/// Resources: 32 Dk or 32 Dv bytes of shared memory.
/// Work: 12 Dk Dv operations per head and position. dk and dv each have a walk of their own, and both walks add up R.
/// That is 2 Dk Dv more than in `recurrent`.
/// Bytes: as three times causal_dot_product's `atomic`.
/// Bound by: as there, latency and atomic adds.
/// Requires: Dk, Dv <= 1024.
/// Weakness: that of the forward kernel. In addition, three kernels that do not depend on each other run one after the
/// other.
/// Sources: as `recurrent`.

#include <cuda_runtime.h>

#include <climits>

#include "01_linear_attention/causal_dot_product_backward/walks.hpp"

namespace tutorial::causal_dot_product_backward {

void atomic(const Arguments& a) {
  for (const Product& walk : walks(a)) causal_dot_product::atomic(walk);
}

std::string atomic_unsupported(const Arguments& a) {
  if (a.Dk > 1024 || a.Dv > 1024) return "Dk or Dv > 1024: one thread per column, and a block has 1024 threads at most";
  if (std::int64_t(a.B) * a.H > INT_MAX) return "B H > 2^31 - 1: the grid's first dimension";
  return "";
}

}  // namespace tutorial::causal_dot_product_backward
