/// @file
/// `gpu`: gla's dispatch, with gates that do not change.
///
/// Idea: retention is gla with the same g in every element and at every position of a head. gla reads g through a view,
/// so one row of Dk numbers per head is enough: the stride of the view from position to position is 0. A kernel of H
/// blocks writes these rows before each call, so that a call can be captured in a graph and no host memory has to live
/// until it has run. q, k, v and o are in fp32, or in bf16 for tensor cores; the table stays fp32.
/// Grows out of: nothing
/// Unchanged: all of gla.
/// Equation:
///
///     g_td = log(1 - 2^(-5-h))        a table [H, Dk], seen as [B, H, L, Dk] with strides 0, Dk, 0, 1
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv] in fp32 or bf16; S_0 and final_state [B, H, Dk, Dv] in fp32; in
/// device memory.
/// Thread mapping: block h of the first kernel writes row h of the table; the rest is that of gla.
/// Work, Bound by, Requires: as gla's `dispatch`.
/// Bytes: q, k, v and o once; the table from the second-level cache.
/// Weakness: a gate that depends on neither element nor position needs no exponentials and no second level: P_ti = (q_t
/// . k_i) exp(g)^(t-i) is a product times a triangle of constants. Chapter 04 has kernels for one gate per head and
/// position.
/// Sources: arXiv 2307.08621, equation 8; arXiv 2312.06635, sections 4.1 and 4.2.

#include <cuda_runtime.h>

#include "03_gla/retention/gate_table.cuh"
#include "03_gla/retention/gates.hpp"

namespace tutorial::retention {

template <class T>
void gpu(const Arguments<T>& a) {
  gla::dispatch(gated(a, write_gate_table(a.H, a.Dk)));
}
template void gpu(const FloatArguments&);
template void gpu(const Bf16Arguments&);

}  // namespace tutorial::retention
