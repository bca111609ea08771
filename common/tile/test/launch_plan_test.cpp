/// @file
/// Plans of a launch: segments cover the sequence, and tiles fit.

#include "common/tile/launch_plan.hpp"

#include <gtest/gtest.h>

#include "common/device/device.hpp"

namespace tutorial::tile {
namespace {

TEST(LaunchPlanTest, SegmentsAreWholeChunksAndCoverTheSequence) {
  for (const int L : {1, 63, 64, 65, 1000, 4096}) {
    for (const int segments : {1, 2, 3, 7, 100}) {
      const LaunchPlan plan = make_launch_plan(L, 64, segments);
      EXPECT_LE(plan.segments, segments);
      EXPECT_EQ(plan.length % 64, 0);
      EXPECT_LT((plan.segments - 1) * plan.length, L);
      EXPECT_GE(plan.segments * plan.length, L);
    }
  }
}

TEST(LaunchPlanTest, TilesAreNarrowWhereTheStateIsLargeOrDvIsSmall) {
  EXPECT_EQ(widest_tile({1, 1, 64, 64, 64}), 64);
  EXPECT_EQ(widest_tile({1, 1, 64, 64, 80}), 128);
  EXPECT_EQ(widest_tile({1, 1, 64, 256, 512}), 64);
}

TEST(LaunchPlanTest, OneWaveIsABlockForEachMultiprocessor) {
  const int multiprocessors = multiprocessor_count();
  const LaunchPlan plan = one_wave({1, 1, 64 * 4 * multiprocessors, 128, 64});
  EXPECT_EQ(plan.segments, multiprocessors);
  EXPECT_EQ(one_wave({multiprocessors, 1, 640, 128, 64}).segments, 1);
}

TEST(LaunchPlanTest, MemoryIsThatOfTheStatesBetweenSegments) {
  EXPECT_EQ(launch_plan_memory({2, 3, 640, 48, 80}, make_launch_plan(640, 64, 5)), 4 * 2 * 3 * 4 * 48 * 80);
  EXPECT_EQ(launch_plan_memory({2, 3, 640, 48, 80}, make_launch_plan(640, 64, 1)), 0);
}

}  // namespace
}  // namespace tutorial::tile
