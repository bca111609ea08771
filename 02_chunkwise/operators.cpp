#include "02_chunkwise/operators.hpp"

#include <utility>

#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/linear_attention_backward.hpp"
#include "02_chunkwise/normalized.hpp"
#include "02_chunkwise/normalized_backward.hpp"
#include "02_chunkwise/packed.hpp"
#include "02_chunkwise/packed_backward.hpp"
#include "common/chapter/attention.hpp"
#include "common/chapter/bind_packed.hpp"
#include "common/feature_map.hpp"

namespace tutorial {
namespace linear_attention {
namespace {

constexpr float kEps = 1e-6f;  // chapter 01's

/// Draws phi(x) for a standard normal x, where phi is chapter 01's feature map.
Draw feature() {
  return [](const Random& random, const Sizes& sizes, Tensor& tensor) {
    normal()(random, sizes, tensor);
    for (float& x : tensor.elements<float>()) x = phi(x);
  };
}

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
          call.view<const T>("q"),
          call.view<const T>("k"),
          call.view<const T>("v"),
          call.view<const float>("initial_state"),
          call.view<T>("o"),
          call.view<float>("final_state")};
}
template struct Arguments<float>;
template struct Arguments<__nv_bfloat16>;

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
          call.view<const float>("initial_state"),
          call.view<const T>("do"),
          call.view<const float>("dfinal_state"),
          call.view<T>("dq"),
          call.view<T>("dk"),
          call.view<T>("dv"),
          call.view<float>("dinitial_state")};
}
template struct BackwardArguments<float>;
template struct BackwardArguments<__nv_bfloat16>;

template <class T>
NormalizedBy<T> NormalizedBy<T>::bind(const Call& call) {
  return {Arguments<T>::bind(call), {call.data<const float>("initial_z"), call.data<float>("final_z"), kEps, nullptr}};
}
template struct NormalizedBy<float>;
template struct NormalizedBy<__nv_bfloat16>;

template <class T>
NormalizedBackwardArguments<T> NormalizedBackwardArguments<T>::bind(const Call& call) {
  return {BackwardArguments<T>::bind(call),
          call.data<const float>("initial_z"),
          call.data<const float>("dfinal_z"),
          call.data<float>("dinitial_z"),
          kEps,
          call.view<float>(subtracted_of("dq")),
          call.view<float>(subtracted_of("dk"))};
}
template struct NormalizedBackwardArguments<float>;
template struct NormalizedBackwardArguments<__nv_bfloat16>;

}  // namespace linear_attention
template struct PackedSequences<linear_attention::FloatArguments>;
template struct PackedSequences<linear_attention::Bf16Arguments>;
template struct PackedSequences<linear_attention::Bf16BackwardArguments>;
namespace linear_attention {

Operator definition() {
  Operator definition("linear_attention", "S_t = S_{t-1} + k_t^T v_t, o_t = scale q_t S_t");
  definition.reference(quadratic_double).long_reference(recurrent_double).work(gpu_work);
  return with_attention(std::move(definition), normal(), normal());
}

Operator normalized_definition() {
  Operator definition("linear_attention", "o_t = scale q_t S_t / (scale q_t . z_t + eps), z_t = z_{t-1} + k_t");
  definition.form("normalize", "divide the outputs by scale q_t . z_t + eps; q and k are drawn positive")
      .reference(normalized_double)
      .work(gpu_work);
  definition = with_attention(std::move(definition), feature(), feature());
  definition
      .input({.name = "initial_z",
              .dims = {"B", "H", "Dk"},
              .draw = feature(),
              .optional = true,
              .bf16 = false,
              .in_graph = false})
      .output({.name = "final_z", .dims = {"B", "H", "Dk"}, .bf16 = false, .in_graph = false});
  return definition;
}

Operator packed_definition() {
  return definition().packed();
}

Operator backward_definition() {
  return definition()
      .backward("dq_t = scale do_t S_t^T, dk_t = v_t dS_t^T, dv_t = k_t dS_t, dS_t = dS_{t+1} + scale q_t^T do_t")
      .refuses("dfinal_z", "only --normalize has z")
      .reference(recurrent_double_backward)
      .work(tensor_backward_work);
}

Operator normalized_backward_definition() {
  return normalized_definition()
      .backward("those of --backward with u_t = do_t / (scale q_t . z_t + eps) for do_t, and those of the denominator")
      .cancels("dq")
      .cancels("dk")
      .reference(normalized_double_backward)
      .work(tensor_backward_work);
}

}  // namespace linear_attention
}  // namespace tutorial
