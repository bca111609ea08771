#include <algorithm>
#include <utility>

#include "05_deltanet_wy/kda.hpp"
#include "05_deltanet_wy/kda_backward.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "05_deltanet_wy/packed_backward.hpp"
#include "05_deltanet_wy/packed_kda.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"

namespace tutorial::kda {
namespace {

constexpr std::int64_t kGpuChunk = 64, kSubChunk = 16;

/// The average number of earlier positions in the same chunk.
double earlier(const Sizes& s, std::int64_t C) {
  return double(std::min(C, s.at("L")) - 1) / 2;
}

/// Operations of a stage in chunks of C, a multiply-add counting as two, but for those of the gates: the state is read
/// with a key and a query and written with a key; A and P; T by substitution; T and P times a chunk's values.
double chunk_flops(const Sizes& s, std::int64_t C) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv")), chunk = double(std::min(C, s.at("L")));
  const double before = earlier(s, C);
  return positions(s) * 2 * (3 * Dk * Dv + before * Dk + (before + 1) * Dk + 2 * (before + 1) * Dv + chunk * chunk / 6);
}

/// So many exponentials for each gate of each position.
double exponentials(const Sizes& s, double per_gate) {
  return positions(s) * double(s.at("Dk")) * per_gate;
}

/// Exponentials of one set of decayed products, per gate: of the pairs in a sub-chunk, and between sub-chunks of one
/// row and of the keys before it.
double product_exponentials(std::int64_t C) {
  const auto part = double(std::min(C, kSubChunk));
  return (part + 1) / 2 + 1 + (double(C) / part - 1) / 2;
}

/// Of the gradients in chunks of C: 9 products with states; P, <K, K>, Y, Z and the adjoints of the first two, which
/// are two sums of rows each; two triangular systems, and <K, K> v_new and P^T dO. <K, K> and a system are computed in
/// both walks.
Work backward_work(const Sizes& s, std::int64_t C) {
  C = std::min(C, s.at("L"));
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  const double pairs = earlier(s, C) + 1;
  return {.fma_flops = positions(s) * 2 * (9 * Dk * Dv + pairs * (7 * Dk + 7 * Dv)),
          .exponentials = exponentials(s, 5 * product_exponentials(C) + 4)};
}

/// What the operator and its form share.
Operator with_inputs(Operator definition, const Draw& keys) {
  definition.reference(recurrent).work([](const Sizes& s) -> Work {
    const double pairs = earlier(s, kSubChunk) + 1;
    const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
    // Of a pair in a sub-chunk, in A and in P: the key's multiplication with the gate. Of the state: its decay.
    return {.fma_flops = positions(s) * (2 * 2 * pairs * Dk + 2 * Dk * Dv / double(kGpuChunk)),
            .tensor_flops = chunk_flops(s, kGpuChunk),
            .exponentials = exponentials(s, 1)};
  });
  return with_attention(std::move(definition), normal(), keys,
                        {{.name = "g",
                          .dims = {"B", "H", "L", "Dk"},
                          .draw = logsigmoid(4),
                          .gate = true,
                          .bf16 = false,
                          .valid = [](double g, const Sizes&) { return g <= 0; },
                          .requirement = "must be at most 0"},
                         {.name = "beta",
                          .dims = {"B", "H", "L"},
                          .draw = uniform(0, 1),
                          .bf16 = false,
                          .valid = [](double beta, const Sizes&) { return beta >= 0 && beta <= 2; },
                          .requirement = "must be between 0 and 2"}});
}

constexpr const char* kSummary =
    "S_t = diag(exp(g_t)) S_{t-1} + beta_t k_t^T (v_t - k_t diag(exp(g_t)) S_{t-1}), o_t = scale q_t S_t";

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
          call.view<const float>("g"),
          call.view<const float>("beta"),
          call.view<const float>("initial_state"),
          call.view<T>("o"),
          call.view<float>("final_state")};
}
template struct Arguments<float>;
template struct Arguments<__nv_bfloat16>;

}  // namespace tutorial::kda

template struct tutorial::PackedSequences<tutorial::kda::Bf16Arguments>;

namespace tutorial::kda {

template <class T>
BackwardArguments<T> BackwardArguments<T>::bind(const Call& call) {
  return {delta_rule::BackwardArguments<T>::bind(call), call.view<const float>("g"), call.view<float>("dg")};
}
template struct BackwardArguments<float>;
template struct BackwardArguments<__nv_bfloat16>;

Operator definition() {
  return with_inputs(Operator("kda", kSummary).problem_note(delta_rule::warn_of_long_keys), unit_rows());
}

Operator normalized_definition() {
  Operator definition("kda", kSummary);
  definition.form("normalize-keys", "bring k to length 1 inside the stages; it is drawn of any length")
      .parameter("key_eps", double(kKeyEps), "");  // in the report, and fixed: no key in a file's metadata
  return with_inputs(std::move(definition), normal());
}

Operator backward_definition(const Operator& forward) {
  Operator definition = forward.backward(
      "the gradients: dg_t = the row sums of dR_t . R_t, R_t = diag(exp(g_t)) S_{t-1}; kda_backward.hpp");
  definition.cancels("dbeta");  // as in delta_rule
  definition.cancels("dk");
  definition.reference(recurrent_backward).work([](const Sizes& s) -> Work {
    // In fp32: 6 operations of a pair within a sub-chunk, a multiply-add counting as two.
    const double pairs = positions(s) * earlier(s, kSubChunk) * double(s.at("Dk"));
    return {.fma_flops = 10 * pairs,
            .tensor_flops = backward_work(s, kGpuChunk).fma_flops,
            .exponentials = exponentials(s, 3)};
  });
  return definition;
}

Work recurrent_work(const Sizes& s) {
  // The decay's multiplication takes a unit as long as a multiply-add.
  return {.fma_flops = positions(s) * 8 * double(s.at("Dk") * s.at("Dv")), .exponentials = exponentials(s, 1)};
}

Work chunkwise_work(const Sizes& s) {
  const std::int64_t C = std::min(s.at("C"), s.at("L"));
  return {.fma_flops = chunk_flops(s, C), .exponentials = exponentials(s, 2 * product_exponentials(C) + 2)};
}

Work recurrent_backward_work(const Sizes& s) {
  // Three walks of 3, 4 and 3 products with a state, each of which decays its state.
  return {.fma_flops = positions(s) * 2 * 13 * double(s.at("Dk") * s.at("Dv")), .exponentials = exponentials(s, 1)};
}

Work chunkwise_backward_work(const Sizes& s) {
  return backward_work(s, s.at("C"));
}

}  // namespace tutorial::kda

template struct tutorial::PackedSequences<tutorial::kda::Bf16BackwardArguments>;
