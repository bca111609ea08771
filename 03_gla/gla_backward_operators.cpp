#include <algorithm>

#include "03_gla/gla_backward.hpp"
#include "03_gla/gla_backward/requirements.hpp"
#include "03_gla/operators.hpp"
#include "03_gla/packed_backward.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"

namespace tutorial::gla {
namespace {

constexpr std::int64_t kSubChunk = 16;

/// The average number of scores per position within its chunk, its own included.
double pairs(const Sizes& s, std::int64_t C) {
  return double(std::min(C, s.at("L")) + 1) / 2;
}

double gates(const Sizes& s) {
  return positions(s) * double(s.at("Dk"));
}

/// Operations in chunks of C but for those of the gates, a multiply-add counting as two. The states take k_t^T v_t,
/// q_t^T do_t and three products. The scores take two kinds of products and three sums of rows.
double chunk_flops(const Sizes& s, std::int64_t C) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  return positions(s) * (10 * Dk * Dv + 2 * pairs(s, C) * (3 * Dk + 2 * Dv));
}

}  // namespace

template <class T>
BackwardArguments<T> BackwardArguments<T>::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dk"),
          call.size("Dv"),
          call.chunk(),
          call.scale(),
          call.view<const T>("q"),
          call.view<const T>("k"),
          call.view<const T>("v"),
          call.view<const float>("g"),
          call.view<const float>("initial_state"),
          call.view<const T>("do"),
          call.view<const float>("dfinal_state"),
          call.view<T>("dq"),
          call.view<T>("dk"),
          call.view<T>("dv"),
          call.view<float>("dg"),
          call.view<float>("dinitial_state")};
}
template struct BackwardArguments<float>;
template struct BackwardArguments<__nv_bfloat16>;

Operator backward_definition() {
  return definition()
      .backward("dg_t = dg_{t+1} + q_t . dq_t - k_t . dk_t, dS_t = diag(exp(g_{t+1})) dS_{t+1} + scale q_t^T do_t")
      .reference(recurrent_backward, recurrent_backward_memory)
      .long_reference(closed_form_double_backward)
      .work(chunkwise_backward_work);
}

Work recurrent_backward_work(const Sizes& s) {
  // 8 multiply-adds and multiplications per element of a state.
  return {.fma_flops = 2 * 8 * gates(s) * double(s.at("Dv")), .exponentials = 2 * gates(s)};
}

Work closed_form_backward_work(const Sizes& s) {
  // 7 of them, and do . v.
  return {.fma_flops = 2 * 7 * gates(s) * double(s.at("Dv")) + 4 * positions(s) * double(s.at("Dv")),
          .exponentials = 2 * gates(s)};
}

Work chunkwise_backward_work(const Sizes& s) {
  const std::int64_t C = std::min(s.at("C"), s.at("L")), c = std::min(C, kSubChunk);
  // One exponential per pair of a sub-chunk; to and from the cuts of the later sub-chunks; in each walk to the chunk's
  // end, from its start and over all of it.
  const double cuts = (1 - double(c) / double(C)) + (double(C) / double(c) - 1) / 2;
  return {.fma_flops = chunk_flops(s, C), .exponentials = gates(s) * (pairs(s, c) - 1 + cuts + 4 + 2 / double(C))};
}

Work subchunk_walks_backward_work(const Sizes& s) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv")), seen = pairs(s, kSubChunk);
  // Of a pair in a sub-chunk: prepare()'s two operations, and its decay, its score and two sums, 3 of them
  // multiply-adds or multiplications of the decay. Of a state: its decay, in three walks.
  return {.fma_flops = positions(s) * (Dk * (4 + 8) * seen + 3 * 2 * Dk * Dv / double(kSubChunk)),
          .tensor_flops = positions(s) * (12 * Dk * Dv + 2 * seen * 2 * Dv),
          .exponentials = 2 * gates(s)};
}

Work materialized_backward_work(const Sizes& s) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  const double own = pairs(s, kSubChunk), cross = pairs(s, 64) - own;
  // In fp32 as above, the states' decays in two walks, and the products of the states of each chunk.
  return {.fma_flops = positions(s) * (Dk * (4 + 8) * own + 2 * 2 * Dk * Dv / double(kSubChunk) + Dk * Dv / 32),
          .tensor_flops = positions(s) * (10 * Dk * Dv + 2 * own * 2 * Dv + 2 * cross * (3 * Dk + 3 * Dv)),
          .exponentials = 2 * gates(s)};
}

Work anchored_pairs_backward_work(const Sizes& s) {
  const auto Dk = double(s.at("Dk"));
  const double own = pairs(s, kSubChunk);
  Work work = materialized_backward_work(s);
  // The pairs for dq and dk are products, and each gate takes two exponentials beside that of prepare().
  work.fma_flops -= positions(s) * Dk * 8 * own;
  work.tensor_flops += positions(s) * 2 * own * 2 * Dk;
  work.exponentials += gates(s);
  return work;
}

Work one_anchor_backward_work(const Sizes& s) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  // In fp32 the states' decays, in two walks, and the products of the states of each chunk. Two exponentials for each
  // gate in the kernel that prepares, and two in the last one.
  return {.fma_flops = positions(s) * (2 * Dk * Dv / 64 + Dk * Dv / 32),
          .tensor_flops = positions(s) * (10 * Dk * Dv + 2 * pairs(s, 64) * (3 * Dk + 3 * Dv)),
          .exponentials = 4 * gates(s)};
}

}  // namespace tutorial::gla

template struct tutorial::PackedSequences<tutorial::gla::Bf16BackwardArguments>;
