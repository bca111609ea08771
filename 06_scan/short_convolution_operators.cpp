#include "06_scan/operators.hpp"
#include "06_scan/short_convolution.hpp"
#include "common/chapter/draw.hpp"

namespace tutorial::short_convolution {
namespace {

double elements(const Sizes& s) {
  return double(s.at("B")) * double(s.at("L")) * double(s.at("D"));
}

}  // namespace

template <class T>
Arguments<T> Arguments<T>::bind(const Call& call) {
  return {call.size("B"),
          call.size("L"),
          call.size("D"),
          call.size("W"),
          call.view<const T>("u"),
          call.data<const float>("kernel"),
          call.view<const float>("initial_state"),
          call.view<T>("y"),
          call.view<float>("final_state")};
}
template struct Arguments<float>;
template struct Arguments<__nv_bfloat16>;

template <class T>
BackwardArguments<T> BackwardArguments<T>::bind(const Call& call) {
  return {call.size("B"),
          call.size("L"),
          call.size("D"),
          call.size("W"),
          call.view<const T>("u"),
          call.data<const float>("kernel"),
          call.view<const float>("initial_state"),
          call.view<const T>("dy"),
          call.view<const float>("dfinal_state"),
          call.view<T>("du"),
          call.data<float>("dkernel"),
          call.view<float>("dinitial_state")};
}
template struct BackwardArguments<float>;
template struct BackwardArguments<__nv_bfloat16>;

Operator definition() {
  Operator definition("short_convolution", "y_td = sum_{j<W} kernel_dj u_{t-W+1+j, d}: W numbers for each channel");
  definition.input({.name = "u", .dims = {"B", "L", "D"}, .draw = normal()})
      .input({.name = "kernel", .dims = {"D", "W"}, .draw = normal(), .bf16 = false})
      .input({.name = "initial_state",
              .dims = {"B", "W", "D"},
              .draw = normal(),
              .optional = true,
              .bf16 = false,
              .in_graph = false})
      .output({.name = "y", .dims = {"B", "L", "D"}})
      .output({.name = "final_state", .dims = {"B", "W", "D"}, .bf16 = false, .in_graph = false})
      .sizes({{"B", 4}, {"L", 2048}, {"D", 3072}, {"W", 4}})
      .modest_sizes({{"B", 1}, {"L", 512}, {"D", 48}})
      .work([](const Sizes& s) -> Work { return {.fma_flops = 2 * double(s.at("W")) * elements(s)}; })
      .reference(direct);
  return definition;
}

Operator backward_definition() {
  return definition()
      .backward("du_td = sum_{j<W} kernel_dj dy_{t+W-1-j, d}, dkernel_dj = sum over b and t of dy_td u_{t-W+1+j, d}")
      .work([](const Sizes& s) -> Work { return {.fma_flops = 4 * double(s.at("W")) * elements(s)}; })
      .reference(direct_backward);
}

}  // namespace tutorial::short_convolution
