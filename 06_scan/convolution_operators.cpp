#include <cmath>

#include "06_scan/convolution.hpp"
#include "06_scan/convolution/requirements.hpp"
#include "06_scan/operators.hpp"
#include "common/chapter/draw.hpp"

namespace tutorial::convolution {
namespace {

double channels(const Sizes& s) {
  return double(s.at("B")) * double(s.at("D"));
}

/// kernel_j = r^j: what a scan can do, too. r is such that a step is remembered for some hundred others.
Draw powers() {
  return [](const Random&, const Sizes&, Tensor& tensor) {
    const auto r = double(0.99f);
    double power = 1;
    for (float& element : tensor.elements<float>()) {
      element = float(power);
      power *= r;
    }
  };
}

}  // namespace

Arguments Arguments::bind(const Call& call) {
  return {call.size("B"),
          call.size("L"),
          call.size("D"),
          call.view<const float>("u"),
          call.data<const float>("kernel"),
          call.view<float>("y")};
}

Operator definition() {
  Operator definition("convolution", "y_t = sum_{j<=t} kernel_{t-j} u_j; drawn is kernel_j = 0.99^j");
  definition.input({.name = "u", .dims = {"B", "L", "D"}, .draw = normal(), .bf16 = false})
      .input({.name = "kernel", .dims = {"L"}, .draw = powers(), .bf16 = false})
      .output({.name = "y", .dims = {"B", "L", "D"}, .bf16 = false})
      .sizes({{"B", 4}, {"L", 4096}, {"D", 256}})
      .modest_sizes({{"B", 1}, {"L", 512}, {"D", 16}})
      .work(
          [](const Sizes& s) -> Work { return {.fma_flops = channels(s) * double(s.at("L")) * double(s.at("L") + 1)}; })
      .reference(direct)
      .long_reference(fft, fft_memory);
  return definition;
}

Work fft_work(const Sizes& s) {
  const auto N = double(padded_length(s.at("L")));
  return {.fma_flops = channels(s) * (5 * N * std::log2(N) + 3 * N)};
}

Work by_scan_work(const Sizes& s) {
  const double exponentials = double(s.at("B")) * double(s.at("L")) * std::ceil(double(s.at("D")) / 4);
  return {.fma_flops = 2 * channels(s) * double(s.at("L")), .exponentials = exponentials};
}

}  // namespace tutorial::convolution
