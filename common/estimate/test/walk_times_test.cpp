/// @file
/// The estimates of walks prefer what they should, and follow the card.

#include "common/estimate/walk_times.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/estimate/card.hpp"

namespace tutorial::estimate {
namespace {

TEST(WalkTimeTest, TheFastestPlanIsNoSlowerThanAnyOther) {
  constexpr WalkClocks kClocks{.narrow = {.walk = {3960, 7130}, .states = {1390, 2380}},
                               .wide = {.walk = {5740, 10500}, .states = {1780, 3560}}};
  for (const tile::Extents& e :
       {tile::Extents{1, 1, 16384, 128, 128}, {4, 8, 512, 128, 128}, {8, 32, 2048, 128, 128}}) {
    const double least = walk_time(e, kClocks, fastest_plan(e, kClocks));
    for (const int columns : {64, 128}) {
      for (const int segments : {1, 2, 4, 8, 16}) {
        if (segments * e.B * e.H > 2 * card().multiprocessors) continue;
        EXPECT_LE(least, walk_time(e, kClocks, tile::make_launch_plan(e.L, columns, segments)));
      }
    }
  }
  const tile::Extents one_head{1, 1, 16384, 128, 128};
  EXPECT_GT(fastest_plan(one_head, kClocks).segments, 8) << "one head alone leaves the GPU idle";
}

TEST(WalkTimeTest, ABlockPerMultiprocessorIsBoundByItsProductsOrByTheMemory) {
  constexpr ExclusiveWalkClocks kClocks{.walk = 1000, .states = 600, .bytes_speed = 0.95};
  const Card here = card();
  const int multiprocessors = here.multiprocessors;
  const auto time_of = [&](int heads) {
    const tile::Extents e{1, heads, 6400, 128, 64};
    return walk_time(e, kClocks, tile::make_launch_plan(e.L, 64, 1));
  };
  EXPECT_DOUBLE_EQ(time_of(1), here.microseconds(100 * 1000)) << "100 chunks in line";
  const double chunk_bytes = 2 * 64 * (2 * 128 + 2 * 64);
  EXPECT_DOUBLE_EQ(time_of(multiprocessors),
                   100 * std::max(here.microseconds(1000), here.transfer(multiprocessors * chunk_bytes, 0.95)));
  EXPECT_DOUBLE_EQ(time_of(multiprocessors + 1), 2 * time_of(multiprocessors)) << "a second round for one block";
  for (const tile::Extents& e :
       {tile::Extents{1, 1, 16384, 128, 128}, {4, 8, 512, 128, 128}, {8, 32, 2048, 128, 128}}) {
    const tile::LaunchPlan best = fastest_plan(e, kClocks);
    EXPECT_EQ(best.columns, 64);
    for (const int segments : {1, 2, 4, 8, 16}) {
      if (2 * segments * e.B * e.H > 2 * multiprocessors) continue;
      EXPECT_LE(walk_time(e, kClocks, best), walk_time(e, kClocks, tile::make_launch_plan(e.L, 64, segments)));
    }
  }
}

TEST(WalkTimeTest, BlocksThatDoNotShareAMultiprocessorTakeTheirTurns) {
  constexpr WalkClocks kClocks{
      .narrow = {.walk = {4000}, .states = {1400}}, .wide = {.walk = {6000}, .states = {1800}}, .resident = 1};
  const Card here = card();
  const int multiprocessors = here.multiprocessors;
  const auto time_of = [&](int heads) {
    const tile::Extents e{1, heads, 6400, 128, 128};
    return walk_time(e, kClocks, tile::make_launch_plan(e.L, 128, 1));
  };
  EXPECT_DOUBLE_EQ(time_of(multiprocessors), here.microseconds(100 * 6000));
  EXPECT_DOUBLE_EQ(time_of(multiprocessors + 1), here.microseconds(200 * 6000)) << "a second round for one block";
  const tile::Extents full{1, multiprocessors, 6400, 128, 128};
  EXPECT_EQ(fastest_plan(full, kClocks, 128).columns, 128);
  EXPECT_EQ(fastest_plan(full, kClocks, 64).columns, 64);
}

}  // namespace
}  // namespace tutorial::estimate
