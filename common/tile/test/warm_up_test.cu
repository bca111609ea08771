/// @file
/// Where a warm-up starts, against the definition in double.

#include "common/tile/warm_up.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/tile/test/matrices.hpp"

namespace tutorial::tile {
namespace {

constexpr float kLn2 = 0.693147181f;

/// A warp per question: block i asks for begins[i].
__global__ void ask_kernel(const float* g, const int* begins, int limit, int* starts) {
  const int begin = begins[blockIdx.x];
  const int start = warm_up_start(begin, limit, [&](int t) { return load_global(g + t); });
  if (start != __shfl_sync(kAllLanes, start, 0)) store_global(starts, -2);  // lanes disagree
  if (lane_index() == 0) store_global(starts + blockIdx.x, start);
}

/// A block per question. @param g [L, channels]
template <int kThreads>
__global__ void ask_for_channels_kernel(const float* g, const int* begins, int limit, int channels, int* starts) {
  const int begin = begins[blockIdx.x];
  const int start = warm_up_start<kThreads>(
      begin, limit, channels, [&](int t, int d) { return load_global(g + std::int64_t(t) * channels + d); });
  if (threadIdx.x == kThreads - 1) store_global(starts + blockIdx.x, start);
}

/// The definition. @param gives_up at a chunk after which a channel has forgotten less than its share
int expected_start(const std::vector<float>& g, int begin, int limit, int channels, bool gives_up) {
  std::vector<double> sums(std::size_t(channels), 0.0);
  for (int n = 1; n <= limit; ++n) {
    const int t = begin - n * kChunk;
    if (t <= 0) return 0;
    for (int i = t * channels; i < (t + kChunk) * channels; ++i) sums[std::size_t(i % channels)] += g[std::size_t(i)];
    const double least = *std::ranges::max_element(sums) / kLn2;
    if (least <= kForgotten) return t;
    if (gives_up && begin > limit * kChunk && least > kForgotten * n / limit) return kNoWarmUp;
  }
  return kNoWarmUp;
}

std::vector<int> all_begins(std::size_t L) {
  std::vector<int> begins;
  for (int begin = 0; begin <= int(L); begin += kChunk) begins.push_back(begin);
  return begins;
}

/// Negative numbers around `mean`.
std::vector<float> gates(std::size_t size, float mean, unsigned seed) {
  std::vector<float> g = normal_numbers(size, seed);
  for (float& x : g) x = -std::abs(mean * (1 + 0.3f * x));
  return g;
}

std::vector<int> answers(const std::vector<float>& g, int limit) {
  const std::vector<int> begins = all_begins(g.size());
  const DeviceBuffer<float> gates(g);
  const DeviceBuffer<int> asked(begins);
  DeviceBuffer<int> starts(begins.size());
  launch(ask_kernel, {unsigned(begins.size()), 32}, gates.data(), asked.data(), limit, starts.data());
  return starts.download();
}

template <int kThreads>
std::vector<int> answers_for_channels(const std::vector<float>& g, int limit, int channels) {
  const std::vector<int> begins = all_begins(g.size() / std::size_t(channels));
  const DeviceBuffer<float> gates(g);
  const DeviceBuffer<int> asked(begins);
  DeviceBuffer<int> starts(begins.size());
  launch(ask_for_channels_kernel<kThreads>, {unsigned(begins.size()), kThreads}, gates.data(), asked.data(), limit,
         channels, starts.data());
  return starts.download();
}

TEST(WarmUpTest, OneGateForAllChannels) {
  constexpr std::size_t L = 30 * kChunk;
  for (const float mean : {2.0f, 0.1f, 0.03f, 0.012f, 0.0f}) {
    const std::vector<float> g = gates(L, mean, 1);
    for (const int limit : {1, 2, 7, 8, 9, 16, 17, 1000}) {
      const std::vector<int> starts = answers(g, limit);
      const std::vector<int> begins = all_begins(L);
      for (std::size_t i = 0; i < begins.size(); ++i) {
        ASSERT_EQ(starts[i], expected_start(g, begins[i], limit, 1, false))
            << mean << ", " << limit << ", " << begins[i];
      }
    }
  }
}

// Whole bits, so that sums are exact.
TEST(WarmUpTest, TwentyFourBitsAreEnoughAndLessAreNot) {
  std::vector<float> g(4 * kChunk, 0.0f);
  for (int i = 0; i < 24; ++i) g[std::size_t(2 * kChunk + 2 * i)] = std::nextafter(-kLn2, -1.0f);
  EXPECT_EQ(answers(g, 1), (std::vector<int>{0, 0, kNoWarmUp, 2 * kChunk, kNoWarmUp}));
  g[2 * kChunk] *= 0.999f;
  EXPECT_EQ(answers(g, 1), (std::vector<int>{0, 0, kNoWarmUp, kNoWarmUp, kNoWarmUp}));
}

template <int kThreads>
void expect_channels() {
  for (const int channels : {1, 16, 80, 128}) {
    constexpr std::size_t L = 12 * kChunk;
    for (const float mean : {2.0f, 0.2f, 0.06f, 0.0f}) {
      std::vector<float> g = gates(L * std::size_t(channels), mean, 2);
      for (const bool one_forgets_less : {false, true}) {
        if (one_forgets_less) {
          for (std::size_t t = 0; t < L; ++t) g[(t + 1) * std::size_t(channels) - 1] *= 0.3f;
        }
        for (const int limit : {1, 2, 4, 9}) {
          const std::vector<int> starts = answers_for_channels<kThreads>(g, limit, channels);
          const std::vector<int> begins = all_begins(L);
          for (std::size_t i = 0; i < begins.size(); ++i) {
            ASSERT_EQ(starts[i], expected_start(g, begins[i], limit, channels, true))
                << kThreads << ", " << channels << ", " << mean << ", " << limit << ", " << begins[i];
          }
        }
      }
    }
  }
}

TEST(WarmUpTest, AGateForEachChannel) {
  expect_channels<128>();
  expect_channels<192>();
  expect_channels<256>();
  expect_channels<544>();
}

}  // namespace
}  // namespace tutorial::tile
