#include "05_deltanet_wy/operators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/packed_delta_rule.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"
#include "common/chapter/problem.hpp"

namespace tutorial::delta_rule {
namespace {

/// Operations on a state at each position, a multiply-add counting as two: read it with a key, add to it, read it with
/// a query; or the same for whole chunks.
double state_flops(const Sizes& s) {
  return positions(s) * 6 * double(s.at("Dk") * s.at("Dv"));
}

/// What a chunk of C positions takes beside that, however its W and U are computed: k_t . k_i for i < t, each row of W
/// and of U from the rows before it, a score for each i <= t, and for each score a row of v_new.
double chunk_flops(const Sizes& s, std::int64_t C) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  const double before = double(std::min(C, s.at("L")) - 1) / 2;
  return positions(s) * 2 * (before * (Dk + Dk + Dv) + (before + 1) * (Dk + Dv));
}

/// T by substitution: C^3 / 6 multiply-adds per chunk. The products with T include the diagonal.
double solve_flops(const Sizes& s, std::int64_t C) {
  const auto chunk = double(std::min(C, s.at("L")));
  return positions(s) * 2 * (chunk * chunk / 6 + double(s.at("Dk") + s.at("Dv")));
}

}  // namespace

std::string warn_of_long_keys(const Problem& problem) {
  constexpr double kRounding = 1.01;  // of keys of length 1, to bf16
  const Tensor& k = problem.inputs.at("k");
  const auto elements = k.elements<float>();
  const auto width = std::size_t(k.shape().back());
  double longest = 0;  // its square
  for (std::size_t row = 0; row < elements.size(); row += width) {
    double squares = 0;
    for (const float x : elements.subspan(row, width)) squares += double(x) * double(x);
    longest = std::max(longest, squares);
  }
  longest = std::sqrt(longest);
  if (longest <= kRounding) return "";
  return fmt::format(
      "warning: keys are up to {:.3g} long; above 1 a step may overshoot, from sqrt(2 / beta) on the state may grow "
      "without bound (--normalize-keys)",
      longest);
}

namespace {

/// What the operator and its form share.
Operator with_inputs(Operator definition, const Draw& keys) {
  constexpr std::int64_t kGpuChunk = 64;
  definition.reference(recurrent).work([](const Sizes& s) -> Work {
    return {.tensor_flops = state_flops(s) + chunk_flops(s, kGpuChunk) + solve_flops(s, kGpuChunk)};
  });
  return with_attention(std::move(definition), normal(), keys,
                        {{.name = "beta",
                          .dims = {"B", "H", "L"},
                          .draw = uniform(0, 1),
                          .bf16 = false,
                          .valid = [](double beta, const Sizes&) { return beta >= 0 && beta <= 2; },
                          .requirement = "must be between 0 and 2"}});
}

constexpr const char* kSummary = "S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1}), o_t = scale q_t S_t";

}  // namespace

template <class T>
Arguments<T> Arguments<T>::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dk"),
          call.size("Dv"),
          call.chunk(),
          call.scale(),
          call.has_parameter("key_eps"),
          call.view<const T>("q"),
          call.view<const T>("k"),
          call.view<const T>("v"),
          call.view<const float>("beta"),
          call.view<const float>("initial_state"),
          call.view<T>("o"),
          call.view<float>("final_state")};
}
template struct Arguments<float>;
template struct Arguments<__nv_bfloat16>;

}  // namespace tutorial::delta_rule

template struct tutorial::PackedSequences<tutorial::delta_rule::Bf16Arguments>;

namespace tutorial::delta_rule {

Operator definition() {
  return with_inputs(Operator("delta_rule", kSummary).problem_note(warn_of_long_keys), unit_rows());
}

Operator normalized_definition() {
  Operator definition("delta_rule", kSummary);
  definition.form("normalize-keys", "bring k to length 1 inside the stages; it is drawn of any length")
      .parameter("key_eps", double(kKeyEps), "");  // in the report, and fixed: no key in a file's metadata
  return with_inputs(std::move(definition), normal());
}

Work recurrent_work(const Sizes& s) {
  return {.fma_flops = state_flops(s)};
}

Work dense_product_work(const Sizes& s) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  const auto C = double(std::min(s.at("C"), s.at("L")));
  // Per position: both products, k_t^T v_t, and q_t P, q_t P S and q_t H. Per chunk: P S.
  return {.fma_flops = positions(s) * 2 * (Dk * Dk * (Dk + Dv) + Dk * (Dk + 3 * Dv) + Dk * Dk * Dv / C)};
}

Work wy_work(const Sizes& s) {
  return {.fma_flops = state_flops(s) + chunk_flops(s, s.at("C"))};
}

Work ut_transform_work(const Sizes& s) {
  return {.fma_flops = state_flops(s) + chunk_flops(s, s.at("C")) + solve_flops(s, s.at("C"))};
}

}  // namespace tutorial::delta_rule
