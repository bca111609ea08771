#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "02_chunkwise/operators.hpp"
#include "03_gla/operators.hpp"
#include "04_fused_chunk/operators.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "06_scan/decode.hpp"
#include "06_scan/decode_pool.hpp"
#include "06_scan/operators.hpp"
#include "common/chapter/draw.hpp"

namespace tutorial::decode {
namespace {

/// The chapter's operator that a rule is decoded from.
Operator chapter_definition(Rule rule) {
  switch (rule) {
    case Rule::simple_gla:
      return simple_gla::definition();
    case Rule::gla:
      return gla::definition();
    case Rule::delta_rule:
      return delta_rule::definition();
    case Rule::gated_delta_rule:
      return gated_delta_rule::definition();
    case Rule::kda:
      return kda::definition();
    case Rule::normalized:
      return linear_attention::normalized_definition();
  }
  throw std::logic_error("no such rule");
}

/// Its operations with tokens one after another, and in chunks.
Work recurrent_work_of(Rule rule, const Sizes& s) {
  switch (rule) {
    case Rule::simple_gla:
      return simple_gla::recurrent_work(s);
    case Rule::gla:
      return gla::recurrent_work(s);
    case Rule::delta_rule:
      return delta_rule::recurrent_work(s);
    case Rule::gated_delta_rule:
      return gated_delta_rule::recurrent_work(s);
    case Rule::kda:
      return kda::recurrent_work(s);
    case Rule::normalized:
      return linear_attention::recurrent_work(s);
  }
  throw std::logic_error("no such rule");
}

Work chunk_work_of(Rule rule, const Sizes& s) {
  switch (rule) {
    case Rule::gla:
      return gla::subchunk_walk_work(s);
    case Rule::normalized:
      return linear_attention::tensor_work(s);
    default:
      return chapter_definition(rule).work_of(Stage{}, s);
  }
}

/// The problem of so many tokens.
Sizes with_length(Sizes sizes, std::int64_t L) {
  sizes["L"] = L;
  return sizes;
}

/// Inputs, outputs and scale are those of the rule's chapter; but states are never left out: a token is its state.
Operator with_tensors(Operator definition, Rule rule) {
  const Operator chapter = chapter_definition(rule);
  const bool has_features = rule == Rule::normalized;  // of its own, and no scale: there q and k are features
  for (Input input : chapter.inputs()) {
    input.in_graph = true;
    if (has_features && (input.name == "q" || input.name == "k")) input.draw = normal();
    definition.input(std::move(input));
  }
  if (has_features) {
    definition
        .input({.name = "key_lengths",
                .dims = {"B"},
                .dtype = Dtype::int32,
                .optional = true,
                .valid = [](double n, const Sizes& s) { return n >= 0 && n <= double(s.at("L")); },
                .requirement = "must be between 0 and the number of tokens"})
        .parameter("eps", 1e-6, "eps");
  } else {
    definition.scale([chapter](const Sizes& s) { return chapter.default_scale(s); });
  }
  for (Output output : chapter.outputs()) {
    output.in_graph = true;
    definition.output(std::move(output));
  }
  return definition.problem_note([chapter](const Problem& problem) { return chapter.note_on(problem); });
}

}  // namespace

template <class T>
Arguments<T> Arguments<T>::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dk"),
          call.size("Dv"),
          call.size("P"),
          call.scale(),
          call.has_parameter("eps") ? call.parameter("eps") : 0.0f,
          call.view<const T>("q"),
          call.view<const T>("k"),
          call.view<const T>("v"),
          call.view<const float>("g"),
          call.view<const float>("beta"),
          call.data<const std::int32_t>("key_lengths"),
          call.view<const float>("initial_state"),
          call.data<const float>("initial_z"),
          call.view<T>("o"),
          call.view<float>("final_state"),
          call.data<float>("final_z")};
}
template struct Arguments<float>;
template struct Arguments<__nv_bfloat16>;

template <Rule kRule>
Operator definition() {
  const std::string kSummary = "the first P tokens at once, the others one at a time: ";
  const std::string rule = kRule == Rule::normalized
                               ? "o_t = phi(q_t) S_t / (phi(q_t) . z_t + eps), phi(x) = elu(x) + 1"
                               : chapter_definition(kRule).summary();
  Operator definition("decode", kSummary + rule);
  if (kRule == Rule::gla) definition.form("gla", "decode with a gate for each row of the state");
  if (kRule == Rule::delta_rule) definition.form("delta-rule", "decode with the delta rule");
  if (kRule == Rule::gated_delta_rule) definition.form("gated-delta-rule", "decode with the gated delta rule");
  if (kRule == Rule::kda) definition.form("kda", "decode with the delta rule and a gate for each row of the state");
  if (kRule == Rule::normalized) definition.form("normalized", "decode with chapter 01's feature map and normaliser");
  definition = with_tensors(std::move(definition), kRule);
  definition.sizes({{"B", 256}, {"H", 8}, {"L", 1}, {"Dk", 128}, {"Dv", 128}})
      .modest_sizes({{"B", 2}, {"H", 2}, {"L", 24}, {"Dk", 32}, {"Dv", 32}})
      .derived_size("P", [](const Sizes& s) { return s.at("L") * 2 / 3; })
      .may_be_zero("P")
      .consistent([](const Sizes& s) -> std::string {
        if (s.at("P") <= s.at("L")) return "";
        return "P = " + std::to_string(s.at("P")) + ": the prompt is a part of the L = " + std::to_string(s.at("L")) +
               " tokens";
      })
      .work([](const Sizes& s) { return recurrent_work_of(kRule, s); })
      .reference(recurrent<kRule>);
  return definition;
}
/// Slots in any order, each at most once; every fourth entry is idle.
Draw slots_of_pool() {
  return [](const Random& random, const Sizes& sizes, Tensor& tensor) {
    const auto indices = tensor.elements<std::int32_t>();
    std::vector<std::int32_t> free(std::size_t(sizes.at("slots")));
    std::iota(free.begin(), free.end(), 0);
    for (std::size_t b = 0; b < indices.size(); ++b) {
      const auto chosen = std::size_t(random.uniform(b) * double(free.size()));
      indices[b] = b % 4 == 3 ? -1 : free[chosen];
      std::swap(free[chosen], free.back());
      free.pop_back();
    }
  };
}

template <Rule kRule>
Operator pool_definition() {
  const Operator tokens = definition<kRule>();
  Operator pool("decode", tokens.summary());
  for (const auto& [name, help] : tokens.form_options()) pool.form(name, help);
  pool.form("pool", "decode with states in the slots of a pool, some batch entries being idle");
  for (Input input : tokens.inputs()) {
    if (input.name == "initial_state") {
      input.name = "state_pool", input.dims[0] = "slots", input.optional = false;
    }
    pool.input(std::move(input));
  }
  pool.input({.name = "state_indices",
              .dims = {"B"},
              .draw = slots_of_pool(),
              .dtype = Dtype::int32,
              .slots = true,
              .valid = [](double n, const Sizes& s) { return n >= -1 && n < double(s.at("slots")); },
              .requirement = "must be a slot of the pool, or -1"});
  for (Output output : tokens.outputs()) {
    if (output.name == "final_state") output.name = "final_pool", output.dims[0] = "slots";
    pool.output(std::move(output));
  }
  pool.scale([tokens](const Sizes& s) { return tokens.default_scale(s); })
      .sizes({{"B", 256}, {"H", 8}, {"L", 1}, {"Dk", 128}, {"Dv", 128}})
      .modest_sizes({{"B", 5}, {"H", 2}, {"L", 24}, {"Dk", 32}, {"Dv", 32}})
      .derived_size("P", [](const Sizes& s) { return s.at("L") * 2 / 3; })
      .derived_size("slots", [](const Sizes& s) { return s.at("B") + s.at("B") / 2 + 1; })
      .may_be_zero("P")
      .consistent([tokens](const Sizes& s) { return tokens.conflict(s); })
      .work([](const Sizes& s) { return recurrent_work_of(kRule, s); })
      .problem_note([tokens](const Problem& problem) { return tokens.note_on(problem); })
      .reference(recurrent_pool<kRule>);
  return pool;
}

template <class T>
PoolArguments<T> PoolArguments<T>::bind(const Call& call) {
  return {Arguments<T>::bind(call), call.size("slots"), call.data<const std::int32_t>("state_indices"),
          call.view<const float>("state_pool"), call.view<float>("final_pool")};
}
template struct PoolArguments<float>;
template struct PoolArguments<__nv_bfloat16>;

double bf16_states_tolerance(const Sizes& s) {
  return 1e-2 + std::sqrt(double(s.at("L") - s.at("P"))) / 512;
}

template Operator pool_definition<Rule::simple_gla>();
template Operator pool_definition<Rule::gla>();
template Operator pool_definition<Rule::delta_rule>();
template Operator pool_definition<Rule::gated_delta_rule>();
template Operator pool_definition<Rule::kda>();

template <Rule kRule>
Work prefill_work(const Sizes& s) {
  return chunk_work_of(kRule, s);
}

template <Rule kRule>
Work step_work(const Sizes& s) {
  const std::int64_t P = s.at("P");
  Work work = recurrent_work_of(kRule, with_length(s, s.at("L") - P));
  if (P > 0) {
    const Work prompt = prefill_work<kRule>(with_length(s, P));
    work.fma_flops += prompt.fma_flops;
    work.tensor_flops += prompt.tensor_flops;
    work.exponentials += prompt.exponentials;
  }
  return work;
}

#define INSTANTIATE(RULE)                         \
  template Operator definition<RULE>();           \
  template Work prefill_work<RULE>(const Sizes&); \
  template Work step_work<RULE>(const Sizes&)
INSTANTIATE(Rule::simple_gla);
INSTANTIATE(Rule::gla);
INSTANTIATE(Rule::delta_rule);
INSTANTIATE(Rule::normalized);
INSTANTIATE(Rule::gated_delta_rule);
INSTANTIATE(Rule::kda);
#undef INSTANTIATE

}  // namespace tutorial::decode
