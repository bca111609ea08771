#include "01_linear_attention/operators.hpp"

#include "01_linear_attention/attention.hpp"
#include "01_linear_attention/causal_dot_product.hpp"
#include "01_linear_attention/causal_dot_product_backward.hpp"

namespace tutorial {
namespace {

constexpr float kEps = 1e-6f;  // added to the normaliser, as in fast-transformers

/// The sizes that all three operators share.
Operator with_sizes(Operator definition) {
  return definition.sizes({{"B", 4}, {"H", 8}, {"L", 2048}, {"Dk", 64}, {"Dv", 64}})
      .modest_sizes({{"B", 1}, {"H", 4}, {"L", 512}});
}

/// Inputs and outputs of the two attention operators.
Operator with_attention(Operator definition) {
  definition.input({.name = "q", .dims = {"B", "H", "L", "Dk"}, .draw = normal()})
      .input({.name = "k", .dims = {"B", "H", "Lk", "Dk"}, .draw = normal()})
      .input({.name = "v", .dims = {"B", "H", "Lk", "Dv"}, .draw = normal()})
      .input({.name = "key_lengths",
              .dims = {"B"},
              .draw = integers(1, "Lk"),
              .dtype = Dtype::int32,
              .optional = true,
              .valid = [](double n, const Sizes& s) { return n >= 0 && n <= double(s.at("Lk")); },
              .requirement = "must be between 0 and the number of keys"})
      .output({.name = "o", .dims = {"B", "H", "L", "Dv"}})
      .derived_size("Lk", [](const Sizes& s) { return s.at("L"); });
  return with_sizes(std::move(definition));
}

/// Operations of `products` products of a row of Dk with a [Dk, Dv] matrix, per head. A multiply-add counts as two.
Work state_work(const Sizes& s, std::int64_t products) {
  return {.fma_flops = 2.0 * double(s.at("B") * s.at("H") * products * s.at("Dk") * s.at("Dv"))};
}

/// Operations of `scores` scores q . k per head, each of which weighs one row of v.
Work score_work(const Sizes& s, std::int64_t scores) {
  return {.fma_flops = 2.0 * double(s.at("B") * s.at("H") * scores * (s.at("Dk") + s.at("Dv")))};
}

std::int64_t causal_scores(const Sizes& s) {
  return s.at("L") * (s.at("L") + 1) / 2;
}

}  // namespace

namespace causal_dot_product {

Arguments Arguments::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dk"),
          call.size("Dv"),
          call.view<const float>("q"),
          call.view<const float>("k"),
          call.view<const float>("v"),
          call.view<float>("o")};
}

Operator definition() {
  Operator definition("causal_dot_product", "o_t = q_t sum_{i<=t} k_i^T v_i");
  definition.input({.name = "q", .dims = {"B", "H", "L", "Dk"}, .draw = normal()})
      .input({.name = "k", .dims = {"B", "H", "L", "Dk"}, .draw = normal()})
      .input({.name = "v", .dims = {"B", "H", "L", "Dv"}, .draw = normal()})
      .output({.name = "o", .dims = {"B", "H", "L", "Dv"}})
      .work([](const Sizes& s) { return state_work(s, 2 * s.at("L")); })
      .reference(quadratic)
      .long_reference(recurrent_double);
  return with_sizes(std::move(definition));
}

Work quadratic_work(const Sizes& s) {
  return score_work(s, causal_scores(s));
}

}  // namespace causal_dot_product

namespace causal_dot_product_backward {

Arguments Arguments::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dk"),
          call.size("Dv"),
          call.view<const float>("q"),
          call.view<const float>("k"),
          call.view<const float>("v"),
          call.view<const float>("do"),
          call.view<float>("dq"),
          call.view<float>("dk"),
          call.view<float>("dv")};
}

Operator definition() {
  return causal_dot_product::definition()
      .backward("dq_t = do_t S_t^T, dk_t = v_t dS_t^T, dv_t = k_t dS_t, dS_t = sum_{i>=t} q_i^T do_i")
      .work([](const Sizes& s) { return state_work(s, 5 * s.at("L")); })
      .reference(quadratic_double)
      .long_reference(recurrent_double);
}

Work walks_work(const Sizes& s) {
  return state_work(s, 6 * s.at("L"));
}

}  // namespace causal_dot_product_backward

AttentionArguments AttentionArguments::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Lk"),
          call.size("Dk"),
          call.size("Dv"),
          call.view<const float>("q"),
          call.view<const float>("k"),
          call.view<const float>("v"),
          call.data<const std::int32_t>("key_lengths"),
          kEps,
          call.view<float>("o")};
}

namespace causal_attention {

Operator definition() {
  return with_attention(
             Operator("causal_attention", "o_t = phi(q_t) S_t / (phi(q_t) . z_t + eps), phi(x) = elu(x) + 1"))
      .work([](const Sizes& s) { return state_work(s, 2 * s.at("L")); })
      .reference(quadratic_double)
      .long_reference(recurrent_double);
}

}  // namespace causal_attention

namespace bidirectional_attention {

Operator definition() {
  return with_attention(Operator("bidirectional_attention", "the same with one S and z for all queries"))
      .work([](const Sizes& s) { return state_work(s, s.at("L") + s.at("Lk")); })
      .reference(quadratic_double)
      .long_reference(state_double, state_double_memory);
}

}  // namespace bidirectional_attention

AttentionBackwardArguments AttentionBackwardArguments::bind(const Call& call) {
  return {AttentionArguments::bind(call),
          call.view<const float>("do"),
          call.view<float>("dq"),
          call.view<float>("dk"),
          call.view<float>("dv"),
          call.view<float>(subtracted_of("dq")),
          call.view<float>(subtracted_of("dk"))};
}

namespace causal_attention_backward {

Operator definition() {
  return causal_attention::definition()
      .backward("dq, dk, dv through phi, the two states and the division")
      .cancels("dq")
      .cancels("dk")
      .work([](const Sizes& s) { return state_work(s, 6 * s.at("L")); })
      .reference(quadratic_double)
      .long_reference(recurrent_double);
}

}  // namespace causal_attention_backward

namespace bidirectional_attention_backward {

Operator definition() {
  return bidirectional_attention::definition()
      .backward("the same with one S, z and one adjoint of each")
      .cancels("dq")
      .cancels("dk")
      .work([](const Sizes& s) { return state_work(s, 3 * (s.at("L") + s.at("Lk"))); })
      .reference(quadratic_double)
      .long_reference(state_double);
}

}  // namespace bidirectional_attention_backward

}  // namespace tutorial
