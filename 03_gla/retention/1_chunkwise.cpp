/// @file
/// `chunkwise`: gla's stage of this name, with gates that do not change.
///
/// Idea: retention is gla with the same g in every element and at every position of a head. gla reads g through a view,
/// so one row of Dk numbers per head is enough: the stride of the view from position to position is 0.
/// Grows out of: nothing
/// Unchanged: all of gla's `chunkwise`.
/// Equation:
///
///     g_td = log(1 - 2^(-5-h))        a table [H, Dk], seen as [B, H, L, Dk] with strides 0, Dk, 0, 1
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host memory.
/// Thread mapping, Work, Bound by, Requires: as gla's `chunkwise`.
/// Bytes: q, k, v and o once.
/// Weakness: a gate that depends on neither element nor position needs no exponentials and no second level: P_ti = (q_t
/// . k_i) exp(g)^(t-i) is a product times a triangle of constants. Chapter 04 has kernels for one gate per head and
/// position.
/// Sources: arXiv 2307.08621, equation 8; arXiv 2312.06635, section 4.1.

#include <vector>

#include "03_gla/retention/gates.hpp"

namespace tutorial::retention {

void chunkwise(const FloatArguments& a) {
  std::vector<float> g;
  for (int h = 0; h < a.H; ++h) g.insert(g.end(), std::size_t(a.Dk), log_gate(h));
  gla::chunkwise(gated(a, g.data()));
}

std::int64_t chunkwise_memory(const FloatArguments& a) {
  return gla::chunkwise_memory(gated(a, nullptr)) + table_bytes(a.H, a.Dk);
}

}  // namespace tutorial::retention
