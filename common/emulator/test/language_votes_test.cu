/// @file
/// Votes, ballots and matches.

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

struct Votes {
  unsigned ballot;
  int any, all;
};

/// Lanes of `mask` vote with their bit of `yes`.
__global__ void vote(Votes* out, unsigned mask, unsigned yes) {
  const unsigned lane = threadIdx.x % 32;
  if (!(mask >> lane & 1)) return;
  const int predicate = static_cast<int>(yes >> lane & 1) * 12;  // anything but zero is a yes
  Votes votes;
  votes.ballot = __ballot_sync(mask, predicate);
  votes.any = __any_sync(mask, predicate);
  votes.all = __all_sync(mask, predicate);
  out[threadIdx.x] = votes;
}

TEST(Votes, CountTheLanesOfTheMask) {
  const unsigned masks[] = {~0u, 1u, 0x80000000u, 0x55555555u, 0x00FFFF00u};
  for (const unsigned mask : masks) {
    for (const unsigned yes : {0u, ~0u, 0x12345678u, mask, ~mask, mask & (mask - 1)}) {
      DeviceBuffer<Votes> out(64);
      launch(vote, {1, 64}, out.data(), mask, yes);
      const std::vector<Votes> result = out.download();
      for (unsigned i = 0; i < 64; ++i) {
        if (!(mask >> i % 32 & 1)) continue;
        EXPECT_EQ(result[i].ballot, mask & yes);
        EXPECT_EQ(result[i].any != 0, (mask & yes) != 0);
        EXPECT_EQ(result[i].all != 0, (mask & yes) == mask);
      }
    }
  }
}

TEST(Votes, WorkInAShortWarp) {
  for (const unsigned threads : {1u, 7u, 31u}) {
    const unsigned mask = (1u << threads) - 1;
    DeviceBuffer<Votes> out(threads);
    launch(vote, {1, threads}, out.data(), mask, ~0u);
    for (const Votes& votes : out.download()) {
      EXPECT_EQ(votes.ballot, mask);
      EXPECT_TRUE(votes.all != 0);
    }
  }
}

#if TUTORIAL_EMULATOR

TEST(EmulatedVotes, IgnoreLanesThatTheBlockHasNot) {
  DeviceBuffer<Votes> out(5);
  launch(vote, {1, 5}, out.data(), ~0u, ~0u);
  EXPECT_EQ(out.download()[4].ballot, 31u);
  EXPECT_EQ(out.download()[4].all, 1);
  launch(vote, {1, 5}, out.data(), ~0u, 0u);
  EXPECT_EQ(out.download()[4].any, 0);
}

#endif

struct Matches {
  unsigned any, all, all_of_one;
  int same, same_of_one;
};

template <class T>
__global__ void match(Matches* out, unsigned mask) {
  if (!(mask >> threadIdx.x & 1)) return;
  const T value = static_cast<T>(threadIdx.x / 5);
  Matches matches;
  matches.any = __match_any_sync(mask, value);
  matches.all = __match_all_sync(mask, value, &matches.same);
  matches.all_of_one = __match_all_sync(mask, static_cast<T>(7), &matches.same_of_one);
  out[threadIdx.x] = matches;
}

template <class T>
struct Match : testing::Test {};
using Types = testing::Types<int, unsigned, long long, unsigned long long, float, double>;
TYPED_TEST_SUITE(Match, Types);

TYPED_TEST(Match, FindsLanesWithTheSameValue) {
  for (const unsigned mask : {~0u, 0x0F0F0F0Fu}) {
    DeviceBuffer<Matches> out(32);
    launch(match<TypeParam>, {1, 32}, out.data(), mask);
    const std::vector<Matches> result = out.download();
    for (unsigned i = 0; i < 32; ++i) {
      if (!(mask >> i & 1)) continue;
      EXPECT_EQ(result[i].any, (i < 30 ? 31u << i / 5 * 5 : 3u << 30) & mask);
      EXPECT_EQ(result[i].all, 0u);
      EXPECT_EQ(result[i].same, 0);
      EXPECT_EQ(result[i].all_of_one, mask);
      EXPECT_NE(result[i].same_of_one, 0);
    }
  }
}

/// Warp-aggregated counting: the lanes that run together elect one to add for all of them.
__global__ void count_aggregated(unsigned* counter) {
  if (threadIdx.x % 3 == 0) return;
  const unsigned active = __activemask();
  const int leader = __ffs(static_cast<int>(active)) - 1;
  if (static_cast<int>(threadIdx.x % 32) == leader) atomicAdd(counter, static_cast<unsigned>(__popc(active)));
}

TEST(Activemask, HoldsThisLaneAndNoneThatIsElsewhere) {
  DeviceBuffer<unsigned> counter(std::vector<unsigned>{0});
  launch(count_aggregated, {3, 96}, counter.data());
  EXPECT_EQ(counter.download()[0], 3u * 64);
}

}  // namespace
}  // namespace tutorial
