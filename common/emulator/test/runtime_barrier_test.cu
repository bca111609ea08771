// Barriers: what they order, what they return, and how a block that waits in vain is reported.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/barrier.hpp>
#include <emulator/warp.hpp>

#include <cstring>
#include <string>
#include <vector>

#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

/// The lines of this file, as reports name them.
std::string at_line(unsigned line) {
  return "runtime_barrier_test.cu:" + std::to_string(line) + " in ";
}

// Each thread passes a number on to its neighbour, `steps` times around.
__global__ void rotate(int* out, int steps) {
  __shared__ int ring[1024];
  ring[threadIdx.x] = static_cast<int>(threadIdx.x);
  for (int i = 0; i < steps; ++i) {
    __syncthreads();
    const int next = ring[(threadIdx.x + 1) % blockDim.x];
    __syncthreads();
    ring[threadIdx.x] = next;
  }
  out[global_thread()] = ring[threadIdx.x];
}

TEST(Barrier, OrdersTheThreadsOfABlock) {
  for (const unsigned threads : {1u, 31u, 33u, 96u, 1024u}) {
    const unsigned blocks = 2;
    const int steps = 5;
    std::vector<int> out(blocks * threads, -1);
    ASSERT_EQ(run(blocks, threads, 0, [p = out.data()] { rotate(p, steps); }), cudaSuccess);
    for (unsigned i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], (i % threads + steps) % threads) << threads;
  }
}

__global__ void predicates(int* count, int* all, int* any, int smallest) {
  const int i = static_cast<int>(threadIdx.x);
  count[i] = __syncthreads_count(i >= smallest ? 4 : 0);
  all[i] = __syncthreads_and(i >= smallest);
  any[i] = __syncthreads_or(i >= smallest);
}

TEST(Barrier, CountsAndCombinesPredicates) {
  for (const int smallest : {0, 10, 69, 70}) {
    std::vector<int> count(70), all(70), any(70);
    ASSERT_EQ(run(1, 70, 0, [&] { predicates(count.data(), all.data(), any.data(), smallest); }), cudaSuccess);
    EXPECT_THAT(count, Each(70 - smallest));
    EXPECT_THAT(all, Each(smallest == 0));
    EXPECT_THAT(any, Each(smallest < 70));
  }
}

__global__ void pairs(int* out) {
  __shared__ int value[64];
  value[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncwarp(3u << threadIdx.x % 32 / 2 * 2);  // each pair of lanes by itself
  out[threadIdx.x] = value[threadIdx.x ^ 1];
}

TEST(Barrier, SyncwarpMeetsTheLanesOfItsMask) {
  std::vector<int> out(64);
  ASSERT_EQ(run(1, 64, 0, [&] { pairs(out.data()); }), cudaSuccess);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(out[static_cast<std::size_t>(i)], i ^ 1);
}

__global__ void exchange_with_gap(unsigned* out) {
  const unsigned mask = 0x0FFFFFF0u;
  const unsigned lane_number = lane();
  std::memset(out + 32 * lane_number, 0, 32 * sizeof(unsigned));
  if (!(mask >> lane_number & 1)) return;
  const unsigned mine = 100 + lane_number;
  warp_exchange(mask, &mine, sizeof mine, out + 32 * lane_number, std::source_location::current());
}

TEST(Barrier, ExchangeGivesEachLaneWhatAllGave) {
  std::vector<unsigned> out(32 * 32);
  ASSERT_EQ(run(1, 32, 0, [&] { exchange_with_gap(out.data()); }), cudaSuccess);
  for (unsigned lane = 0; lane < 32; ++lane) {
    const bool takes_part = lane >= 4 && lane < 28;
    for (unsigned other = 0; other < 32; ++other) {
      const bool gives = other >= 4 && other < 28;
      EXPECT_EQ(out[32 * lane + other], !takes_part ? 0 : gives ? 100 + other : 0xFFFFFFFFu);
    }
  }
}

__global__ void exchange_at_the_end_of_a_block(unsigned* out) {
  const unsigned mine = threadIdx.x;
  unsigned all[32];
  warp_exchange(~0u, &mine, sizeof mine, all, std::source_location::current());
  out[threadIdx.x] = all[7];
}

TEST(Barrier, LanesThatTheBlockDoesNotHaveAreNotWaitedFor) {
  std::vector<unsigned> out(40);
  ASSERT_EQ(run(1, 40, 0, [&] { exchange_at_the_end_of_a_block(out.data()); }), cudaSuccess);
  EXPECT_EQ(out[0], 7u);
  EXPECT_EQ(out[39], 39u);
}

// A flag that another thread of the block sets later.
__global__ void wait_for_flag(volatile int* flag) {
  if (threadIdx.x == 0) {
    while (*flag == 0) __nanosleep(100);
  } else if (threadIdx.x == 1) {
    *flag = 1;
  }
}

TEST(Barrier, NanosleepLetsOthersGoOn) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "waiting for a plain variable is a race";
#endif
  int flag = 0;
  ASSERT_EQ(run(1, 2, 0, [&] { wait_for_flag(&flag); }), cudaSuccess);
  EXPECT_EQ(flag, 1);
}

__global__ void half_waits() {
  if (threadIdx.x % 2 == 0 || threadIdx.x > 90) __syncthreads();
}
constexpr unsigned kHalfWaits = __LINE__ - 2;

TEST(StuckBlock, NamesWhoWaitsAndWhoReturned) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(dim3(1, 1, 1), 96, 0, [] { half_waits(); }), cudaErrorLaunchFailure);
  const unsigned launched = __LINE__ - 1;
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  const std::string report = last_report();
  EXPECT_THAT(report, HasSubstr("block (0,0,0) is stuck"));
  EXPECT_THAT(report, HasSubstr("threads 0, 2, 4, 6, 8, 10, 12, 14 and 43 more wait at the barrier "));
  EXPECT_THAT(report, HasSubstr(at_line(kHalfWaits)));
  EXPECT_THAT(report, HasSubstr("half_waits"));
  EXPECT_THAT(report, HasSubstr("threads 1, 3, 5, 7, 9, 11, 13, 15 and 37 more have returned from the kernel"));
  EXPECT_THAT(report, HasSubstr("launched at "));
  EXPECT_THAT(report, HasSubstr(at_line(launched)));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "emulator: " + report);
}

__global__ void two_places() {
  if (threadIdx.z == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
constexpr unsigned kFirstPlace = __LINE__ - 5;
constexpr unsigned kSecondPlace = __LINE__ - 4;

TEST(StuckBlock, ThreadsAtDifferentBarriersDoNotMeet) {
  EXPECT_EQ(run(dim3(2, 3), dim3(8, 4, 2), 0, [] { two_places(); }), cudaErrorLaunchFailure);
  EXPECT_THAT(last_report(), AllOf(HasSubstr("threads 0-31 wait at the barrier "), HasSubstr(at_line(kFirstPlace)),
                                   HasSubstr("threads 32-63 wait at the barrier "), HasSubstr(at_line(kSecondPlace))));
}

__global__ void lane_missing() {
  if (threadIdx.x != 5) __syncwarp();
  if (threadIdx.x == 5) __syncthreads();
}
constexpr unsigned kLaneMissing = __LINE__ - 3;

TEST(StuckBlock, ALaneOfTheMaskThatWaitsElsewhere) {
  EXPECT_EQ(run(1, 64, 0, [] { lane_missing(); }), cudaErrorLaunchFailure);
  EXPECT_THAT(last_report(), AllOf(HasSubstr("threads 0-4, 6-31 wait for the lanes 0xFFFFFFFF at "),
                                   HasSubstr(at_line(kLaneMissing)), HasSubstr("thread 5 waits at the barrier "),
                                   HasSubstr(at_line(kLaneMissing + 1)), HasSubstr("threads 32-63 have returned")));
}

__global__ void masks_differ() {
  __syncwarp(threadIdx.x < 8 ? 0xFFFFu : 0xFFFFFFFFu);
}

TEST(StuckBlock, LanesThatDisagreeAboutTheMask) {
  EXPECT_EQ(run(1, 32, 0, [] { masks_differ(); }), cudaErrorLaunchFailure);
  EXPECT_THAT(last_report(), AllOf(HasSubstr("threads 0-7 wait for the lanes 0x0000FFFF at "),
                                   HasSubstr("threads 8-31 wait for the lanes 0xFFFFFFFF at ")));
}

__global__ void not_in_own_mask() {
  __syncwarp(0xFFFFFFFEu);
}

TEST(StuckBlock, ALaneThatItsOwnMaskLeavesOut) {
  EXPECT_EQ(run(1, 32, 0, [] { not_in_own_mask(); }), cudaErrorLaunchFailure);
  EXPECT_THAT(last_report(), HasSubstr("thread 0 waits for the lanes 0xFFFFFFFE at "));
}

__global__ void collectives_differ() {
  if (threadIdx.x < 16) {
    __syncwarp();
  } else {
    __syncwarp();
  }
}

TEST(StuckBlock, LanesInDifferentCollectivesDoNotMeet) {
  EXPECT_EQ(run(1, 32, 0, [] { collectives_differ(); }), cudaErrorLaunchFailure);
  EXPECT_THAT(last_report(), AllOf(HasSubstr("threads 0-15 wait for the lanes 0xFFFFFFFF at "),
                                   HasSubstr("threads 16-31 wait for the lanes 0xFFFFFFFF at ")));
}

TEST(StuckBlock, TheNextLaunchIsNotDisturbed) {
  std::vector<int> out(1024, -1);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(run(4, 96, 0, [] { half_waits(); }), cudaErrorLaunchFailure);
    EXPECT_EQ(run(1, 1024, 0, [&] { rotate(out.data(), 1); }), cudaSuccess);
    EXPECT_EQ(out[1023], 0);
  }
}

}  // namespace
}  // namespace emulator::test
