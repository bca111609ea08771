#include "02_chunkwise/operators.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "01_linear_attention/feature_map.hpp"
#include "02_chunkwise/linear_attention.hpp"
#include "02_chunkwise/normalized.hpp"
#include "common/chapter/draw.hpp"

namespace tutorial::linear_attention {
namespace {

constexpr std::int64_t kGpuChunk = 64;
constexpr float kEps = 1e-6f;  // chapter 01's

/// Positions of all heads.
double positions(const Sizes& s) {
  return double(s.at("B")) * double(s.at("H")) * double(s.at("L"));
}

/// Operations on a state at each position: k_t^T v_t into it and q_t S out of it, or the same for whole chunks.
double state_flops(const Sizes& s) {
  return positions(s) * 4 * double(s.at("Dk") * s.at("Dv"));
}

/// Operations on scores where a query sees the keys of its chunk up to its own: (C + 1) / 2 on average, each a
/// product with a row of Dk and a sum of rows of Dv.
double score_flops(const Sizes& s, std::int64_t C) {
  return positions(s) * double(std::min(C, s.at("L")) + 1) * double(s.at("Dk") + s.at("Dv"));
}

/// The operations of all stages in chunks of C, a multiply-add counting as two.
double chunk_flops(const Sizes& s, std::int64_t C) {
  return score_flops(s, C) + state_flops(s);
}

/// phi(x) of a standard normal x, chapter 01's feature map.
Draw feature() {
  return [](const Random& random, const Sizes& sizes, Tensor& tensor) {
    normal()(random, sizes, tensor);
    for (float& x : tensor.elements<float>()) x = phi(x);
  };
}

/// Inputs, outputs and sizes of both forms.
Operator with_attention(Operator definition, const Draw& draw) {
  definition.input({.name = "q", .dims = {"B", "H", "L", "Dk"}, .draw = draw})
      .input({.name = "k", .dims = {"B", "H", "L", "Dk"}, .draw = draw})
      .input({.name = "v", .dims = {"B", "H", "L", "Dv"}, .draw = normal()})
      .input({.name = "initial_state",
              .dims = {"B", "H", "Dk", "Dv"},
              .draw = normal(),
              .optional = true,
              .half = false,
              .in_graph = false})
      .output({.name = "o", .dims = {"B", "H", "L", "Dv"}})
      .output({.name = "final_state", .dims = {"B", "H", "Dk", "Dv"}, .half = false, .in_graph = false})
      .sizes({{"B", 4}, {"H", 8}, {"L", 2048}, {"Dk", 128}, {"Dv", 128}, {"C", 64}})
      .modest_sizes({{"B", 1}, {"H", 2}, {"L", 256}, {"Dk", 64}, {"Dv", 64}})
      .scale([](const Sizes& s) { return 1 / std::sqrt(double(s.at("Dk"))); })
      .work([](const Sizes& s) { return Work{.fma_flops = chunk_flops(s, kGpuChunk)}; });
  return definition;
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
NormalizedBy<T> NormalizedBy<T>::bind(const Call& call) {
  return {Arguments<T>::bind(call), {call.data<const float>("initial_z"), call.data<float>("final_z"), kEps, nullptr}};
}
template struct NormalizedBy<float>;
template struct NormalizedBy<__nv_bfloat16>;

Operator definition() {
  Operator definition("linear_attention", "S_t = S_{t-1} + k_t^T v_t, o_t = scale q_t S_t");
  definition.reference(quadratic_double).long_reference(recurrent_double);
  return with_attention(std::move(definition), normal());
}

Operator normalized_definition() {
  Operator definition("linear_attention", "o_t = scale q_t S_t / (scale q_t . z_t + eps), z_t = z_{t-1} + k_t");
  definition.variant("normalize", "divide the outputs by scale q_t . z_t + eps; q and k are drawn positive")
      .reference(normalized_double);
  definition = with_attention(std::move(definition), feature());
  definition
      .input({.name = "initial_z",
              .dims = {"B", "H", "Dk"},
              .draw = feature(),
              .optional = true,
              .half = false,
              .in_graph = false})
      .output({.name = "final_z", .dims = {"B", "H", "Dk"}, .half = false, .in_graph = false});
  return definition;
}

Work recurrent_work(const Sizes& s) {
  return {.fma_flops = state_flops(s)};
}

Work parallel_work(const Sizes& s) {
  return {.fma_flops = chunk_flops(s, s.at("L"))};  // one chunk
}

Work chunkwise_work(const Sizes& s) {
  return {.fma_flops = chunk_flops(s, s.at("C"))};
}

Work tensor_work(const Sizes& s) {
  return {.tensor_flops = chunk_flops(s, kGpuChunk)};
}

}  // namespace tutorial::linear_attention
