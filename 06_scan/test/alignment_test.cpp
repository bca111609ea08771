/// @file
/// Sequences whose numbers are neighbours but whose addresses are no multiples of 16 bytes: `single_pass` must not read
/// four numbers at once.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "06_scan/scan.hpp"
#include "common/device/buffer.hpp"

namespace tutorial::scan {
namespace {

constexpr int B = 2, H = 3, L = 300, kPad = 8;

/// x, g or y: `stride` numbers from one head to the next, `gap` more to the next batch entry, the first `offset` into
/// the memory.
struct Place {
  int stride = L, gap = 0, offset = 0;
};

void expect_right(Place x_place, Place g_place, Place y_place) {
  const auto text = [](Place place) {
    return std::to_string(place.stride) + ", " + std::to_string(place.gap) + ", " + std::to_string(place.offset);
  };
  SCOPED_TRACE("x " + text(x_place) + "; g " + text(g_place) + "; y " + text(y_place));
  constexpr std::size_t kSize = B * H * (L + kPad) + kPad;
  std::vector<float> x(kSize), g(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    x[i] = float(i % 13) - 6;
    g[i] = -0.01f * float(i % 9);
  }
  DeviceBuffer<float> x_there(x), g_there(g), y_there(kSize);
  y_there.fill_bytes(0xFF);
  const auto view = [](auto* data, Place place) {
    return View{data + place.offset, std::int64_t{H} * place.stride + place.gap, place.stride, 1};
  };
  single_pass({.B = B,
               .H = H,
               .L = L,
               .D = 1,
               .Dg = 1,
               .x = view(static_cast<const float*>(x_there.data()), x_place),
               .log_decay = view(static_cast<const float*>(g_there.data()), g_place),
               .initial_state = {},
               .y = view(y_there.data(), y_place),
               .final_state = {},
               .final_log_decay = {}});
  const std::vector<float> y = y_there.download();
  std::size_t written = 0;
  for (const float value : y) written += !std::isnan(value);
  EXPECT_EQ(written, std::size_t{B * H * L}) << "and nothing beside them";
  for (int n = 0; n < B * H; ++n) {
    double expected = 0;
    for (int t = 0; t < L; ++t) {
      const auto at = [&](Place place) { return std::size_t(place.offset + n / H * place.gap + n * place.stride + t); };
      expected = std::exp(double(g[at(g_place)])) * expected + x[at(x_place)];
      ASSERT_NEAR(y[at(y_place)], expected, 1e-3) << "sequence " << n << ", step " << t;
    }
  }
}

TEST(AlignmentTest, OfEachTensor) {
  const Place aligned, further{.stride = L + 4, .gap = 4, .offset = 4};
  expect_right(aligned, aligned, aligned);
  expect_right(further, further, further);
  // The stride alone, as 3 (L + 1) + 1 is a multiple of 4; the gap; the start.
  for (const Place& odd : {Place{.stride = L + 1, .gap = 1}, Place{.gap = 1}, Place{.offset = 1}}) {
    expect_right(odd, aligned, aligned);
    expect_right(aligned, odd, aligned);
    expect_right(aligned, aligned, odd);
    expect_right(odd, odd, odd);
  }
}

}  // namespace
}  // namespace tutorial::scan
