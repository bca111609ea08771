#include <algorithm>

#include "05_deltanet_wy/gated_delta_rule_backward.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "common/chapter/attention.hpp"

namespace tutorial::gated_delta_rule {

BackwardArguments BackwardArguments::bind(const Call& call) {
  return {call.size("B"),
          call.size("H"),
          call.size("L"),
          call.size("Dk"),
          call.size("Dv"),
          call.chunk(),
          call.scale(),
          call.has_parameter("key_eps"),
          call.view<const float>("q"),
          call.view<const float>("k"),
          call.view<const float>("v"),
          call.view<const float>("beta"),
          call.view<const float>("g"),
          call.view<const float>("initial_state"),
          call.view<const float>("do"),
          call.view<const float>("dfinal_state"),
          call.view<float>("dq"),
          call.view<float>("dk"),
          call.view<float>("dv"),
          call.view<float>("dbeta"),
          call.view<float>("dg"),
          call.view<float>("dinitial_state")};
}

Operator backward_definition(const Operator& forward) {
  Operator definition = forward.backward(
      "dv_t = beta_t k_t dS_t, dk_t = delta_t dS_t^T - dv_t S'_t^T, dg_t = dg_{t+1} + q_t . dq_t - v_t . dv_t");
  definition.reference(recurrent_backward, recurrent_backward_memory).work(chunkwise_backward_work);
  return definition;
}

Work recurrent_backward_work(const Sizes& s) {
  // 9 multiply-adds and 3 multiplications by gates per element of the state.
  return {.fma_flops = positions(s) * 24 * double(s.at("Dk") * s.at("Dv")), .exponentials = 3 * positions(s)};
}

Work chunkwise_backward_work(const Sizes& s) {
  const auto Dk = double(s.at("Dk")), Dv = double(s.at("Dv")), C = double(std::min(s.at("C"), s.at("L")));
  return {.fma_flops = positions(s) * (18 * Dk * Dv + (C + 1) * 7 * (Dk + Dv)), .exponentials = positions(s) * (C + 5)};
}

}  // namespace tutorial::gated_delta_rule
