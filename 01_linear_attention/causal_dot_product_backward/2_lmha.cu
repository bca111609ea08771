/// @file
/// `lmha`: the gradients on the GPU, without a new kernel.
///
/// Idea: the walk of `recurrent` from the start is causal_dot_product with other tensors: do_t is the query, v_i the
/// key and k_i the value. With time reversed, both sums of the walk from the end are causal_dot_product, too. A view
/// with a negative stride over time (walks.hpp) reverses it. So the kernel of causal_dot_product's `lmha` computes all
/// three gradients, and whatever makes causal_dot_product fast makes its gradients fast.
/// Grows out of: 1_recurrent.cpp; port to the GPU: the loops are those of causal_dot_product's kernel
/// Improves on: `recurrent` uses one core.
/// Unchanged: two directions, and one position after the other in each.
/// Equation:
///
///   dq_t = sum_{i<=t} (do_t . v_i) k_i
///   dk_i = sum_{t>=i} (v_i . do_t) q_t
///   dv_i = sum_{t>=i} (k_i . q_t) do_t
///
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv], fp32 in device memory; tiles of three of them in shared
/// memory, twice.
/// Thread mapping: block (b, h) of each kernel has one thread per column: Dk columns of S^T for dq, Dk columns of
/// dS^T for dk, Dv columns of dS for dv.
/// Resources: as causal_dot_product's `lmha`.
/// Work: 12 Dk Dv operations per head and position. dk and dv each have a walk of their own, and both walks add up dS.
/// That is 2 Dk Dv more than in `recurrent`.
/// Bytes: each walk reads three tensors and writes one: 12 tensors, of which 7 are different.
/// Bound by: the latency of shared memory, as in the forward stage, three times.
/// Requires: Dk, Dv <= 64: each of the two widths is the length of a column in one of the walks.
/// Weakness: the walks are independent, but each kernel waits for the one before. With B H blocks, most of the
/// multiprocessors have no work.
/// Sources: fast-transformers' `lmha` kernel also runs its own loop backwards for the gradients, by a template
/// parameter.

#include <cuda_runtime.h>

#include "01_linear_attention/causal_dot_product_backward/walks.hpp"

namespace tutorial::causal_dot_product_backward {

void lmha(const Arguments& a) {
  for (const Product& walk : walks(a)) causal_dot_product::lmha(walk);
}

}  // namespace tutorial::causal_dot_product_backward
