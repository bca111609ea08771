/// @file
/// The tree over leaves: for any number of them every map that is asked for is there, and every leaf gets its state.

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "06_scan/delta_rule/map_tree.hpp"

namespace tutorial::scan {
namespace {

using Leaves = std::pair<int, int>;  // first leaf, and the one behind the last

TEST(MapTreeTest, EveryLeafGetsItsState) {
  for (int n = 1; n <= 300; ++n) {
    SCOPED_TRACE(n);
    std::vector<Leaves> maps;  // by their last leaf, as they lie in memory
    for (int leaf = 0; leaf + 1 < n; ++leaf) maps.emplace_back(leaf, leaf + 1);
    const int longest = longest_run(n);
    for (int s = 1; s < longest; s *= 2) {
      for (int f = 0, pair = 0; pair < pairs_going_up(n, s); ++pair, f += 2 * s) {
        ASSERT_LT(f + 2 * s, n) << "no leaf comes after it";
        EXPECT_EQ(maps[std::size_t(f + s - 1)], Leaves(f, f + s));
        EXPECT_EQ(maps[std::size_t(f + 2 * s - 1)], Leaves(f + s, f + 2 * s));
        maps[std::size_t(f + 2 * s - 1)] = {f, f + 2 * s};
      }
    }
    std::vector<bool> is_known(std::size_t(n), false);
    is_known[0] = true;
    for (int s = longest; s > 0; s /= 2) {
      for (int f = 0, state = 0; state < states_going_down(n, s); ++state, f += 2 * s) {
        ASSERT_LT(f + s, n);
        EXPECT_TRUE(is_known[std::size_t(f)]);
        EXPECT_FALSE(is_known[std::size_t(f + s)]) << "made twice";
        EXPECT_EQ(maps[std::size_t(f + s - 1)], Leaves(f, f + s));
        is_known[std::size_t(f + s)] = true;
      }
    }
    EXPECT_EQ(is_known, std::vector<bool>(std::size_t(n), true));
  }
}

TEST(MapTreeTest, Counts) {
  EXPECT_EQ(leaf_count(1), 1);
  EXPECT_EQ(leaf_count(32), 1);
  EXPECT_EQ(leaf_count(33), 2);
  EXPECT_EQ(leaf_count(2147483647 - 32), 67108863);
  EXPECT_EQ(longest_run(1), 0);
  EXPECT_EQ(longest_run(2), 1);
  EXPECT_EQ(longest_run(64), 32);
  EXPECT_EQ(longest_run(65), 64);
}

}  // namespace
}  // namespace tutorial::scan
