/// @file
/// Plans of a launch: segments cover the sequence, tiles fit, and the estimate prefers what it should.

#include "common/tile/launch_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/device/device.hpp"
#include "common/tile/walk_times.hpp"

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

TEST(LaunchPlanTest, TheFastestPlanIsNoSlowerThanAnyOther) {
  constexpr WalkTimes kTimes{.narrow = {.walk = {2.0, 3.6}, .states = {0.7, 1.2}},
                             .wide = {.walk = {2.9, 5.3}, .states = {0.9, 1.8}}};
  for (const Extents& e : {Extents{1, 1, 16384, 128, 128}, {4, 8, 512, 128, 128}, {8, 32, 2048, 128, 128}}) {
    const double least = estimated_time(e, kTimes, fastest_launch_plan(e, kTimes));
    for (const int columns : {64, 128}) {
      for (const int segments : {1, 2, 4, 8, 16}) {
        if (segments * e.B * e.H > 2 * multiprocessor_count()) continue;
        EXPECT_LE(least, estimated_time(e, kTimes, make_launch_plan(e.L, columns, segments)));
      }
    }
  }
  const Extents one_head{1, 1, 16384, 128, 128};
  EXPECT_GT(fastest_launch_plan(one_head, kTimes).segments, 8) << "one head alone leaves the GPU idle";
}

TEST(LaunchPlanTest, ABlockPerMultiprocessorIsBoundByItsProductsOrByTheMemory) {
  constexpr ExclusiveWalkTimes kTimes{.walk = 0.5, .states = 0.3, .bytes_per_microsecond = 4e6};
  const int multiprocessors = multiprocessor_count();
  const auto time_of = [&](int heads) {
    const Extents e{1, heads, 6400, 128, 64};
    return estimated_time(e, kTimes, make_launch_plan(e.L, 64, 1));
  };
  EXPECT_DOUBLE_EQ(time_of(1), 100 * 0.5) << "100 chunks in line";
  const double chunk_bytes = 2 * 64 * (2 * 128 + 2 * 64);
  EXPECT_DOUBLE_EQ(time_of(multiprocessors), 100 * std::max(0.5, multiprocessors * chunk_bytes / 4e6));
  EXPECT_DOUBLE_EQ(time_of(multiprocessors + 1), 2 * time_of(multiprocessors)) << "a second round for one block";
  for (const Extents& e : {Extents{1, 1, 16384, 128, 128}, {4, 8, 512, 128, 128}, {8, 32, 2048, 128, 128}}) {
    const LaunchPlan best = fastest_launch_plan(e, kTimes);
    EXPECT_EQ(best.columns, 64);
    for (const int segments : {1, 2, 4, 8, 16}) {
      if (2 * segments * e.B * e.H > 2 * multiprocessors) continue;
      EXPECT_LE(estimated_time(e, kTimes, best), estimated_time(e, kTimes, make_launch_plan(e.L, 64, segments)));
    }
  }
}

TEST(LaunchPlanTest, BlocksThatDoNotShareAMultiprocessorTakeTheirTurns) {
  constexpr WalkTimes kTimes{
      .narrow = {.walk = {2.0}, .states = {0.7}}, .wide = {.walk = {3.0}, .states = {0.9}}, .resident = 1};
  const int multiprocessors = multiprocessor_count();
  const auto time_of = [&](int heads) {
    const Extents e{1, heads, 6400, 128, 128};
    return estimated_time(e, kTimes, make_launch_plan(e.L, 128, 1));
  };
  EXPECT_DOUBLE_EQ(time_of(multiprocessors), 100 * 3.0);
  EXPECT_DOUBLE_EQ(time_of(multiprocessors + 1), 200 * 3.0) << "a second round for one block";
  const Extents full{1, multiprocessors, 6400, 128, 128};
  EXPECT_EQ(fastest_launch_plan(full, kTimes, 128).columns, 128);
  EXPECT_EQ(fastest_launch_plan(full, kTimes, 64).columns, 64);
}

}  // namespace
}  // namespace tutorial::tile
