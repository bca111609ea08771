/// @file
/// The warm-up's two passes and their picture.

#include "02_chunkwise/prefix_sum/prefix_sum.hpp"

#include <gtest/gtest.h>

namespace tutorial {
namespace {

using Numbers = std::vector<long>;

TEST(PrefixSum, TwoPasses) {
  const ChunkedSums result = chunked_sums({5, 1, 2, 10, 0, 3, 7}, 3);
  EXPECT_EQ(result.local, (Numbers{5, 6, 8, 10, 10, 13, 7}));
  EXPECT_EQ(result.totals, (Numbers{8, 13, 7}));
  EXPECT_EQ(result.carried, (Numbers{0, 8, 21}));
  EXPECT_EQ(result.sums, (Numbers{5, 6, 8, 18, 18, 21, 28}));
}

TEST(PrefixSum, AnyLengthAndAnyChunk) {
  for (const int n : {1, 2, 11, 12, 13, 100}) {
    for (const int chunk : {1, 2, 4, 12, 13, 1000}) EXPECT_TRUE(prefix_sum(n, chunk).passed) << n << " " << chunk;
  }
}

TEST(PrefixSum, Picture) {
  EXPECT_EQ(prefix_sum(5, 2).text,
            "x          0   1 |   2   3 |   4\n"
            "\n"
            "pass 1: each chunk for itself, all at once\n"
            "local      0   1 |   2   5 |   4   as the masked scores inside a chunk, (Q K^T) . M\n"
            "total          1 |       5 |   4   as the state that a chunk adds, K^T V\n"
            "\n"
            "pass 2: the few totals in line, then again all at once\n"
            "carried    0     |   1     |   6   as the state that a chunk starts from, S\n"
            "sum        0   1 |   3   6 |  10   carried + local, as O = Q S + ((Q K^T) . M) V\n");
}

}  // namespace
}  // namespace tutorial
