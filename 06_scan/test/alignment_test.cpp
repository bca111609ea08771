/// @file
/// Sequences whose numbers are neighbours but whose addresses are no multiples of 16 bytes: dispatch must not read
/// four numbers at once, and `wide_tiles` refuses them.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "06_scan/scan.hpp"
#include "06_scan/scan/dispatch/single_pass.hpp"
#include "06_scan/scan/requirements.hpp"
#include "common/device/buffer.hpp"

namespace tutorial::scan {
namespace {

constexpr int B = 2, H = 3, L = 300, kPad = 8;

/// x, g or y: `stride` numbers from one head to the next, `gap` more to the next batch entry, the first `offset` into
/// the memory.
struct Offsets {
  int stride = L, gap = 0, offset = 0;

  bool is_aligned() const { return stride % 4 == 0 && (H * stride + gap) % 4 == 0 && offset % 4 == 0; }
};

void expect_right(Offsets x_at, Offsets g_at, Offsets y_at) {
  const auto text = [](Offsets offsets) {
    return std::to_string(offsets.stride) + ", " + std::to_string(offsets.gap) + ", " + std::to_string(offsets.offset);
  };
  SCOPED_TRACE("x " + text(x_at) + "; g " + text(g_at) + "; y " + text(y_at));
  constexpr std::size_t kSize = B * H * (L + kPad) + kPad;
  std::vector<float> x(kSize), g(kSize);
  for (std::size_t i = 0; i < kSize; ++i) {
    x[i] = float(i % 13) - 6;
    g[i] = -0.01f * float(i % 9);
  }
  DeviceBuffer<float> x_there(x), g_there(g), y_there(kSize);
  y_there.fill_bytes(0xFF);
  const auto view = [](auto* data, Offsets offsets) {
    return View{data + offsets.offset, std::int64_t{H} * offsets.stride + offsets.gap, offsets.stride, 1};
  };
  const Arguments arguments{.B = B,
                            .H = H,
                            .L = L,
                            .D = 1,
                            .Dg = 1,
                            .x = view(static_cast<const float*>(x_there.data()), x_at),
                            .log_decay = view(static_cast<const float*>(g_there.data()), g_at),
                            .initial_state = {},
                            .y = view(y_there.data(), y_at),
                            .final_state = {},
                            .final_log_decay = {}};
  planned_single_pass(arguments);
  const bool is_aligned = x_at.is_aligned() && g_at.is_aligned() && y_at.is_aligned();
  EXPECT_EQ(wide_tiles_unsupported(arguments).empty(), is_aligned);
  const std::vector<float> y = y_there.download();
  std::size_t written = 0;
  for (const float value : y) written += !std::isnan(value);
  EXPECT_EQ(written, std::size_t{B * H * L}) << "and nothing beside them";
  for (int n = 0; n < B * H; ++n) {
    double expected = 0;
    for (int t = 0; t < L; ++t) {
      const auto at = [&](Offsets offsets) {
        return std::size_t(offsets.offset + n / H * offsets.gap + n * offsets.stride + t);
      };
      expected = std::exp(double(g[at(g_at)])) * expected + x[at(x_at)];
      ASSERT_NEAR(y[at(y_at)], expected, 1e-3) << "sequence " << n << ", step " << t;
    }
  }
}

TEST(AlignmentTest, OfEachTensor) {
  const Offsets aligned, further{.stride = L + 4, .gap = 4, .offset = 4};
  expect_right(aligned, aligned, aligned);
  expect_right(further, further, further);
  // The stride alone, as 3 (L + 1) + 1 is a multiple of 4; the gap; the start.
  for (const Offsets& odd : {Offsets{.stride = L + 1, .gap = 1}, Offsets{.gap = 1}, Offsets{.offset = 1}}) {
    expect_right(odd, aligned, aligned);
    expect_right(aligned, odd, aligned);
    expect_right(aligned, aligned, odd);
    expect_right(odd, odd, odd);
  }
}

}  // namespace
}  // namespace tutorial::scan
