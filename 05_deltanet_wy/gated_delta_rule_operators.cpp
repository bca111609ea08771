#include <algorithm>
#include <utility>

#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "05_deltanet_wy/packed_gated_delta_rule.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"
#include "common/chapter/problem.hpp"

namespace tutorial::gated_delta_rule {
namespace {

constexpr std::int64_t kGpuChunk = 64;

/// How many positions of its chunk of C a position reads on average, including its own.
double positions_read(const Sizes& s, std::int64_t C) {
  return double(std::min(C, s.at("L")) + 1) / 2;
}

/// What the operator and its form share.
/// @param ungated the definition of `delta_rule` whose inputs, beside the gates, it has
Operator with_inputs(Operator definition, const Operator& ungated) {
  const auto input = [&](const char* name) {
    return *std::ranges::find(ungated.inputs(), std::string(name), &Input::name);
  };
  definition.reference(recurrent).work([](const Sizes& s) -> Work {
    Sizes in_chunks = s;
    in_chunks["C"] = kGpuChunk;
    const Work chunks = chunkwise_work(in_chunks);
    return {.tensor_flops = chunks.fma_flops, .exponentials = chunks.exponentials};
  });
  return with_attention(std::move(definition), input("q").draw, input("k").draw,
                        {input("beta"),
                         {.name = "g",
                          .dims = {"B", "H", "L"},
                          .draw = logsigmoid(),
                          .gate = true,
                          .bf16 = false,
                          .valid = [](double g, const Sizes&) { return g <= 0; },
                          .requirement = "must be at most 0"}});
}

constexpr const char* kSummary =
    "S_t = exp(g_t) S_{t-1} + beta_t k_t^T (v_t - k_t exp(g_t) S_{t-1}), o_t = scale q_t S_t";

}  // namespace

template <class T>
Arguments<T> Arguments<T>::bind(const Call& call) {
  return {delta_rule::Arguments<T>::bind(call), call.view<const float>("g")};
}
template struct Arguments<float>;
template struct Arguments<__nv_bfloat16>;

}  // namespace tutorial::gated_delta_rule

template struct tutorial::PackedSequences<tutorial::gated_delta_rule::Bf16Arguments>;

namespace tutorial::gated_delta_rule {

Operator definition() {
  const Operator ungated = delta_rule::definition();
  Operator definition("gated_delta_rule", kSummary);
  definition.problem_note([ungated](const Problem& problem) { return ungated.note_on(problem); });
  return with_inputs(std::move(definition), ungated);
}

Operator normalized_definition() {
  Operator definition("gated_delta_rule", kSummary);
  definition.form("normalize-keys", "bring k to length 1 inside the stages; it is drawn of any length")
      .parameter("key_eps", double(kKeyEps), "");  // in the report, and fixed: no key in a file's metadata
  return with_inputs(std::move(definition), delta_rule::normalized_definition());
}

Work recurrent_work(const Sizes& s) {
  // The decay's multiplication takes a unit as long as a multiply-add.
  const double decays = positions(s) * 2 * double(s.at("Dk") * s.at("Dv"));
  return {.fma_flops = delta_rule::recurrent_work(s).fma_flops + decays, .exponentials = positions(s)};
}

Work chunkwise_work(const Sizes& s) {
  // A decay for each pair multiplies a product of keys and a score; one for each position multiplies a row of K S, of
  // Q S and of v_new. Those of the state are one in C.
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  const double pairs = positions_read(s, s.at("C")), chunk = double(std::min(s.at("C"), s.at("L")));
  return {.fma_flops =
              delta_rule::ut_transform_work(s).fma_flops + positions(s) * (4 * pairs + 6 * Dv + 2 * Dk * Dv / chunk),
          .exponentials = positions(s) * (pairs + 2)};
}

}  // namespace tutorial::gated_delta_rule
