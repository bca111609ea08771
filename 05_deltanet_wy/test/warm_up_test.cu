/// @file
/// Where a segment may start from zeros, from the bounds of chunks (zero_starts.cuh).

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "05_deltanet_wy/chunk/zero_starts.cuh"
#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::delta_rule {
namespace {

/// A block per segment.
__global__ void warm_up_kernel(const float* bounds, int length, int* warm_ups) {
  const int begin = int(blockIdx.x) * length;
  store_global(warm_ups + blockIdx.x, warm_up_of(begin, [&](int n) { return load_global(bounds + n); }));
}

/// The warm-up of each segment.
std::vector<int> warm_ups(const std::vector<float>& bounds, int length) {
  const std::size_t segments = (bounds.size() - 1) / std::size_t(length) + 1;
  const DeviceBuffer<float> input(bounds);
  DeviceBuffer<int> output(segments);
  launch(warm_up_kernel, {unsigned(segments), 1u}, input.data(), length, output.data());
  return output.download();
}

using Chunks = std::vector<int>;
const float kAbove = std::nextafter(0x1p-24f, 1.0f);

TEST(WarmUpTest, AtMostTwoToTheMinus24) {
  EXPECT_EQ(warm_ups({1, 0x1p-24f, 1, 1}, 2), (Chunks{0, 1}));
  EXPECT_EQ(warm_ups({1, kAbove, 1, 1}, 2), (Chunks{0, 0}));
  EXPECT_EQ(warm_ups({1, 1, 0x1p-12f, 0x1p-12f, 1}, 4), (Chunks{0, 2}));
  EXPECT_EQ(warm_ups({1, 1, 0x1p-12f, 0x1p-11f, 1}, 4), (Chunks{0, 0}));
  EXPECT_EQ(warm_ups({0, 0}, 1), (Chunks{0, 1}));
}

TEST(WarmUpTest, NoMoreChunksThanTheLimit) {
  std::vector<float> bounds(20, 0x1p-3f);
  EXPECT_EQ(warm_ups(bounds, 16), (Chunks{0, 8}));
  bounds[10] = 0x1p-2f;  // one more would do
  EXPECT_EQ(warm_ups(bounds, 16), (Chunks{0, 0}));
}

TEST(WarmUpTest, EachSegmentForItself) {
  EXPECT_EQ(warm_ups({1, 0x1p-24f, INFINITY, 1, 1, 0x1p-24f, 2, 1, 1}, 2), (Chunks{0, 1, 0, 1, 0}));
}

TEST(WarmUpTest, WhatIsNoNumberIsNoBound) {
  EXPECT_EQ(warm_ups({1, NAN, 0, 1}, 2), (Chunks{0, 0}));
  EXPECT_EQ(warm_ups({NAN, 0, 1, 1}, 2), (Chunks{0, 1})) << "nobody needs it";
  EXPECT_EQ(warm_ups({0, INFINITY, 0, 1}, 2), (Chunks{0, 0}));
}

}  // namespace
}  // namespace tutorial::delta_rule
