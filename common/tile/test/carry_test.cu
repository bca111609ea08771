/// @file
/// States carried from segment to segment, with each kind of decay, and normalisers beside them.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/tile/carry.cuh"
#include "common/tile/test/matrices.hpp"

namespace tutorial::tile {
namespace {

constexpr int B = 2, H = 3, Dk = 20, Dv = 17;

/// What carry_states() should leave. @param decay decay(segment of all, d)
template <class Decay>
std::vector<double> carried(const std::vector<float>& own, const std::vector<float>& initial, int columns, int count,
                            Decay decay) {
  std::vector<double> states(own.size());
  for (int head = 0; head < B * H; ++head) {
    for (int element = 0; element < Dk * columns; ++element) {
      double S = initial.empty() ? 0 : initial[std::size_t(head) * Dk * columns + element];
      for (int n = 0; n < count; ++n) {
        const std::size_t segment = std::size_t(head) * count + n, i = segment * Dk * columns + element;
        S = states[i] = decay(segment, element / columns) * S + own[i];
      }
    }
  }
  return states;
}

void expect_near(const std::vector<float>& states, const std::vector<double>& expected) {
  for (std::size_t i = 0; i < states.size(); ++i) {
    ASSERT_NEAR(states[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << i;
  }
}

template <class MakeDecay>
void expect_carried(int count, bool has_initial, int decays_per_segment, MakeDecay make_decay) {
  const auto own = normal_numbers(std::size_t(B) * H * count * Dk * Dv, 1);
  const auto initial = has_initial ? normal_numbers(std::size_t(B) * H * Dk * Dv, 2) : std::vector<float>();
  std::vector<float> decays(std::size_t(B) * H * count * decays_per_segment);
  for (std::size_t i = 0; i < decays.size(); ++i) decays[i] = 0.5f + 0.4f * std::sin(float(i));
  DeviceBuffer<float> states(own);
  const DeviceBuffer<float> start(initial), decays_device(decays);
  const auto [decay, on_host] = make_decay(decays_device.data(), decays);
  carry_states(
      B, H, Dk, count,
      CarriedStates<std::remove_cv_t<decltype(decay)>>{packed(start.data(), H, Dk, Dv), Dv, states.data(), decay});
  expect_near(states.download(), carried(own, initial, Dv, count, on_host));
}

TEST(CarryTest, EachKindOfDecay) {
  for (const int count : {1, 7, 8, 9, 20}) {
    for (const bool has_initial : {false, true}) {
      expect_carried(count, has_initial, 1, [](const float*, const std::vector<float>&) {
        return std::pair(NoDecay{}, [](std::size_t, int) { return 1.0; });
      });
      expect_carried(count, has_initial, 1, [](const float* device, const std::vector<float>& decays) {
        return std::pair(SegmentDecay{device}, [&](std::size_t segment, int) { return double(decays[segment]); });
      });
      expect_carried(count, has_initial, Dk, [](const float* device, const std::vector<float>& decays) {
        return std::pair(RowDecay<1>{device, Dk},
                         [&](std::size_t segment, int d) { return double(decays[segment * Dk + std::size_t(d)]); });
      });
      expect_carried(count, has_initial, 4 * Dk, [](const float* device, const std::vector<float>& decays) {
        return std::pair(RowDecay<4>{device, Dk}, [&](std::size_t segment, int d) {
          double product = 1;
          for (std::size_t i = 0; i < 4; ++i) product *= decays[(segment * 4 + i) * Dk + std::size_t(d)];
          return product;
        });
      });
    }
  }
}

TEST(CarryTest, NormalizersBesideStates) {
  constexpr int kCount = 5;
  const auto own = normal_numbers(std::size_t(B) * H * kCount * Dk * Dv, 1);
  const auto own_z = normal_numbers(std::size_t(B) * H * kCount * Dk, 3);
  const auto initial_z = normal_numbers(std::size_t(B) * H * Dk, 4);
  DeviceBuffer<float> states(own), normalizers(own_z);
  const DeviceBuffer<float> start(initial_z);
  carry_states(B, H, Dk, kCount, CarriedStates<>{{}, Dv, states.data()},
               CarriedStates<>{packed(static_cast<const float*>(start.data()), H, Dk, 1), 1, normalizers.data()});
  const auto one = [](std::size_t, int) { return 1.0; };
  expect_near(states.download(), carried(own, {}, Dv, kCount, one));
  expect_near(normalizers.download(), carried(own_z, initial_z, 1, kCount, one));
}

}  // namespace
}  // namespace tutorial::tile
