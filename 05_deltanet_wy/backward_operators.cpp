#include <algorithm>
#include <utility>

#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "05_deltanet_wy/packed_backward.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"

namespace tutorial::delta_rule {
namespace {

/// Operations of `tensor_core` in chunks of 64, a multiply-add counting as two. With states: K S and K^T v_new
/// forwards; dO S^T, K dS, v_new dS^T, dV S^T, Q^T dO and K^T dV. Within a chunk, on and below the diagonal: K K^T, Q
/// K^T, and four products of a triangle with Q or K; dO v_new^T, dV v_new^T, P^T dO, and two products with T.
double tensor_flops(const Sizes& s) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  return positions(s) * (16 * Dk * Dv + double(std::min<std::int64_t>(64, s.at("L")) + 1) * (6 * Dk + 5 * Dv));
}

constexpr const char* kSummary =
    "dv_t = beta_t k_t dS_t, dk_t = delta_t dS_t^T - dv_t S_{t-1}^T, dbeta_t = k_t dS_t . (v_t - k_t S_{t-1})";

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
          call.has_parameter("key_eps"),
          call.view<const T>("q"),
          call.view<const T>("k"),
          call.view<const T>("v"),
          call.view<const float>("beta"),
          call.view<const float>("initial_state"),
          call.view<const T>("do"),
          call.view<const float>("dfinal_state"),
          call.view<T>("dq"),
          call.view<T>("dk"),
          call.view<T>("dv"),
          call.view<float>("dbeta"),
          call.view<float>("dinitial_state"),
          call.view<float>(subtracted_of("dk")),
          call.view<float>(subtracted_of("dbeta"))};
}
template struct BackwardArguments<float>;
template struct BackwardArguments<__nv_bfloat16>;

Operator backward_definition(const Operator& forward) {
  Operator definition = forward.backward(kSummary);
  definition.cancels("dbeta");  // e_t . v_t and e_t . (k_t S_{t-1}) are numbers of either sign
  definition.cancels("dk");     // so are its two terms; with --normalize-keys, what points along the key is subtracted
  definition.reference(recurrent_backward, recurrent_backward_memory).work([](const Sizes& s) -> Work {
    return {.tensor_flops = tensor_flops(s)};
  });
  return definition;
}

Work recurrent_backward_work(const Sizes& s) {
  return {.fma_flops = positions(s) * 18 * double(s.at("Dk") * s.at("Dv"))};
}

Work chunkwise_backward_work(const Sizes& s) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv"));
  return {.fma_flops = positions(s) * (18 * Dk * Dv + double(std::min(s.at("C"), s.at("L")) + 1) * 7 * (Dk + Dv))};
}

}  // namespace tutorial::delta_rule

template struct tutorial::PackedSequences<tutorial::delta_rule::Bf16BackwardArguments>;
