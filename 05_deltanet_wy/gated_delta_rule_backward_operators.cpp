#include <algorithm>

#include "05_deltanet_wy/delta_rule_backward/dispatch/requirements.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"
#include "05_deltanet_wy/operators.hpp"
#include "05_deltanet_wy/packed_backward.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"

namespace tutorial::gated_delta_rule {
namespace {

constexpr std::int64_t kGpuChunk = 64;

}  // namespace

template <class T>
BackwardArguments<T> BackwardArguments<T>::bind(const Call& call) {
  return {delta_rule::BackwardArguments<T>::bind(call), call.view<const float>("g"), call.view<float>("dg"),
          call.view<float>(terms_of("dg"))};
}
template struct BackwardArguments<float>;
template struct BackwardArguments<__nv_bfloat16>;

Operator backward_definition(const Operator& forward) {
  Operator definition =
      forward.backward("dv_t = beta_t k_t dS_t, dk_t = delta_t dS_t^T - dv_t S'_t^T, dg_t = <dS'_t, S'_t>");
  definition.cancels("dbeta");  // as in delta_rule
  definition.cancels("dk");
  definition.sums("dg");  // of the products of all elements of two states
  definition.reference(recurrent_backward, recurrent_backward_memory).work([](const Sizes& s) -> Work {
    Sizes in_chunks = s;
    in_chunks["C"] = kGpuChunk;
    const Work chunks = chunkwise_backward_work(in_chunks);
    return {.tensor_flops = chunks.fma_flops, .exponentials = chunks.exponentials};
  });
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

template struct tutorial::PackedSequences<tutorial::gated_delta_rule::Bf16BackwardArguments>;
