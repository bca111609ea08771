#include <algorithm>
#include <cmath>

#include "04_fused_chunk/operators.hpp"
#include "04_fused_chunk/packed_backward.hpp"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "04_fused_chunk/simple_gla_backward/requirements.hpp"
#include "04_fused_chunk/simple_gla_backward/segment_plan.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"

namespace tutorial::simple_gla {
namespace {

constexpr std::int64_t kGpuChunk = 64, kFragment = 16;

/// A multiply-add counting as two: what five products with states take at each position.
double backward_state_flops(const Sizes& s) {
  return positions(s) * 10 * double(s.at("Dk") * s.at("Dv"));
}

/// Two kinds of scores and three sums of rows, for each key of the chunk of C that a query sees.
double backward_score_flops(const Sizes& s, std::int64_t C) {
  return positions(s) * double(std::min(C, s.at("L")) + 1) * (3 * double(s.at("Dk")) + 2 * double(s.at("Dv")));
}

/// Decays of the scores that a query sees in a chunk of C, and two per row.
double backward_exponentials(const Sizes& s, std::int64_t C) {
  return positions(s) * (double(std::min(C, s.at("L")) + 1) / 2 + 2);
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
      .backward("dS_t = exp(g_{t+1}) dS_{t+1} + scale q_t^T do_t, dg_t = dg_{t+1} + q_t . dq_t - k_t . dk_t")
      .reference(reference_backward, reference_backward_memory)
      .work([](const Sizes& s) -> Work {  // scores in tiles of 16 x 16, on and below the diagonal
        return {.tensor_flops = backward_state_flops(s) + backward_score_flops(s, kGpuChunk + kFragment - 1),
                .exponentials = backward_exponentials(s, kGpuChunk)};
      });
}

Work recurrent_backward_work(const Sizes& s) {
  // The decays' multiplications take a unit as long as a multiply-add.
  return {.fma_flops = positions(s) * 14 * double(s.at("Dk") * s.at("Dv")), .exponentials = positions(s)};
}

Work chunkwise_backward_work(const Sizes& s) {
  return {.fma_flops = backward_state_flops(s) + backward_score_flops(s, s.at("C")),
          .exponentials = backward_exponentials(s, s.at("C"))};
}

// dg_t is one number, a sum over many positions of differences whose terms may be larger than dg. So its error may be
// twice what the runner asks for in general, and that of a sum over the whole sequence grows like a random walk.
double fp32_backward_tolerance(const Sizes& s) {
  return 2e-5 * std::sqrt(std::max(1.0, double(s.at("L")) / 4096));
}

namespace {

/// In bf16 a pair of positions in two chunks enters the sum by way of S and leaves it by way of dS, each rounded on its
/// own: both chunks' border leaves up to 2^-8 of such pairs, which are as large as dg, however strong gates are. So many
/// steps of a random walk make 1e-2 or less over 16 borders, as a rule, and twice that now and then.
double tolerance_of_sum(double positions) {
  return 2e-2 * std::sqrt(std::max(1.0, positions / 1024));
}

}  // namespace

double bf16_backward_tolerance(const Sizes& s) {
  return tolerance_of_sum(std::min<double>(double(s.at("L")), kLongest));  // the sum starts anew in each segment
}

double walks_backward_tolerance(const Sizes& s) {
  return tolerance_of_sum(double(s.at("L")));
}

}  // namespace tutorial::simple_gla

template struct tutorial::PackedSequences<tutorial::simple_gla::Bf16BackwardArguments>;
