#include "06_scan/convolution/example.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

#include "06_scan/convolution.hpp"
#include "common/device/buffer.hpp"

namespace tutorial::convolution {
namespace {

Arguments arguments(const float* u, const float* kernel, float* y, int L) {
  return {1, L, 1, packed(u, 1, L, 1), kernel, packed(y, 1, L, 1)};
}

std::string line(const char* name, const std::vector<float>& numbers) {
  std::string text = fmt::format("{:<8}", name);
  for (const float number : numbers) text += fmt::format("{:>9.6g}", number);
  return text + "\n";
}

}  // namespace

Demonstration worked_example() {
  const std::vector<float> u{1, 2, 3, 4}, kernel{1, 0.5f, 0.25f, 0.125f}, expected{1, 2.5f, 4.25f, 6.125f};
  const int L = int(u.size());
  std::vector<float> y(u.size());
  std::string text = "y_t = sum_{j<=t} kernel_{t-j} u_j; kernel_j = 1/2^j, so that y_t = y_{t-1} / 2 + u_t.\n\n" +
                     line("u", u) + line("kernel", kernel);
  bool passed = true;
  const auto show = [&](const char* name) {
    text += line(name, y);
    for (std::size_t t = 0; t < y.size(); ++t) passed = passed && std::abs(y[t] - expected[t]) < 1e-6f;
  };
  direct(arguments(u.data(), kernel.data(), y.data(), L));
  show("direct");
  fft(arguments(u.data(), kernel.data(), y.data(), L));
  show("fft");
  const DeviceBuffer<float> device_u(u), device_kernel(kernel);
  DeviceBuffer<float> device_y(u.size());
  by_scan(arguments(device_u.data(), device_kernel.data(), device_y.data(), L));
  y = device_y.download();
  show("scan");
  return {.text = text, .passed = passed};
}

}  // namespace tutorial::convolution
