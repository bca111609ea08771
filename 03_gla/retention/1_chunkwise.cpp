/// @file
/// Stage 1, `chunkwise`: gla's stage 4, told that its gates do not change.
///
/// Idea: a constant gate is a gate. Retention is gla where g_t is the same number in every element and at every
/// position of a head; gla does not ask where its gates lie, so one row of Dk numbers a head does, in a view that goes
/// nowhere from one position to the next.
/// Mends: nothing: this is the first stage. Same as gla's `chunkwise`: everything else.
///
///   g_td = log(1 - 2^(-5-h))        a table [H, Dk], seen as [B, H, L, Dk] with strides 0, Dk, 0, 1
///
/// Shapes: q, k [B, H, L, Dk]; v, o [B, H, L, Dv]; S_0 and final_state [B, H, Dk, Dv]; fp32 in host memory.
/// Who does what, work, limit and needs: gla's. Bytes: q, k, v and o once.
/// Weakness: gates that depend on neither element nor position need neither exponentials nor a second level: P_ti =
/// (q_t . k_i) gamma^(t-i), gamma the gate, is a product times a triangle of constants. Scalar gates are chapter 04's.
/// Source: arXiv 2307.08621, equation 8; arXiv 2312.06635, section 4.1.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "03_gla/retention/gates.hpp"

namespace tutorial::retention {

void chunkwise(const FloatArguments& a) {
  const auto Dk = std::size_t(a.Dk);
  std::vector<float> gates(std::size_t(a.H) * Dk);
  for (int h = 0; h < a.H; ++h) std::fill_n(&gates[std::size_t(h) * Dk], Dk, log_gate(h));
  gla::chunkwise(gated(a, gates.data()));
}

std::int64_t chunkwise_memory(const FloatArguments& a) {
  return gla::chunkwise_memory(gated(a, nullptr)) + 4 * std::int64_t(a.H) * a.Dk;
}

}  // namespace tutorial::retention
