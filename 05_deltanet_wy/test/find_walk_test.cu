/// @file
/// Which chunks each block of zero_starts.cuh walks, from the bounds of chunks.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "05_deltanet_wy/chunk/zero_starts.cuh"
#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"

namespace tutorial::delta_rule {
namespace {

/// A warp per segment.
__global__ void find_kernel(const float* bounds, int length, int chunks, int* walks) {
  const WalkedChunks walk = find_walk(int(blockIdx.x), length, chunks, [&](int n) { return load_global(bounds + n); });
  if (lane_index() != 31) return;
  int* to = walks + blockIdx.x * 3;
  store_global(to, walk.first), store_global(to + 1, walk.begin), store_global(to + 2, walk.end);
}

/// Of each segment: first, begin, end.
std::vector<int> walks(const std::vector<float>& bounds, int length) {
  const int chunks = int(bounds.size()), segments = (chunks - 1) / length + 1;
  const DeviceBuffer<float> input(bounds);
  DeviceBuffer<int> output(std::size_t(segments) * 3);
  launch(find_kernel, {unsigned(segments), 32u}, input.data(), length, chunks, output.data());
  return output.download();
}

using Walks = std::vector<int>;
const float kAbove = std::nextafter(0x1p-24f, 1.0f);

TEST(FindWalkTest, AtMostTwoToTheMinus24) {
  EXPECT_EQ(walks({1, 0x1p-24f, 1, 1}, 2), (Walks{0, 0, 2, 1, 2, 4}));
  EXPECT_EQ(walks({1, kAbove, 1, 1}, 2), (Walks{0, 0, 4, 0, 0, 0}));
  EXPECT_EQ(walks({1, 1, 0x1p-12f, 0x1p-12f, 1}, 4), (Walks{0, 0, 4, 2, 4, 5}));
  EXPECT_EQ(walks({1, 1, 0x1p-12f, 0x1p-11f, 1}, 4), (Walks{0, 0, 5, 0, 0, 0}));
  EXPECT_EQ(walks({0, 0}, 1), (Walks{0, 0, 1, 0, 1, 2}));
}

TEST(FindWalkTest, NoMoreChunksThanTheLimit) {
  std::vector<float> bounds(20, 0x1p-3f);
  EXPECT_EQ(walks(bounds, 16), (Walks{0, 0, 16, 8, 16, 20}));
  bounds[10] = 0x1p-2f;  // one more would do
  EXPECT_EQ(walks(bounds, 16), (Walks{0, 0, 20, 0, 0, 0}));
}

// The block before goes on, up to the next segment that may start.
TEST(FindWalkTest, SegmentsThatMayNotStartAreWalkedByTheOneBefore) {
  const std::vector<float> bounds{1, 0x1p-24f, INFINITY, 1, 1, 0x1p-24f, 2, 1, 1};
  EXPECT_EQ(walks(bounds, 2), (Walks{0, 0, 2, 1, 2, 6, 0, 0, 0, 5, 6, 9, 0, 0, 0}));
}

TEST(FindWalkTest, WhatIsNoNumberIsNoBound) {
  EXPECT_EQ(walks({1, NAN, 0, 1}, 2), (Walks{0, 0, 4, 0, 0, 0}));
  EXPECT_EQ(walks({NAN, 0, 1, 1}, 2), (Walks{0, 0, 2, 1, 2, 4})) << "nobody needs it";
  EXPECT_EQ(walks({0, INFINITY, 0, 1}, 2), (Walks{0, 0, 4, 0, 0, 0}));
}

// More segments than lanes; each chunk is walked for its outputs once.
TEST(FindWalkTest, ManySegments) {
  std::vector<float> bounds(150, 1);
  EXPECT_EQ(walks(bounds, 2)[2], 150);
  bounds[133] = 0, bounds[134] = INFINITY;
  const Walks two = walks(bounds, 2);
  EXPECT_EQ(two[2], 134);
  for (int segment = 1; segment < 75; ++segment) {
    const Walks found(two.begin() + segment * 3, two.begin() + segment * 3 + 3);
    EXPECT_EQ(found, segment == 67 ? (Walks{133, 134, 150}) : (Walks{0, 0, 0})) << segment;
  }
}

}  // namespace
}  // namespace tutorial::delta_rule
