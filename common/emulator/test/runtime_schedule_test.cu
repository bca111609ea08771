// The order in which threads and blocks run, and barriers that are skipped on purpose.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/barrier.hpp>
#include <emulator/schedule.hpp>
#include <emulator/shared.hpp>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;
using testing::Not;

class Schedule : public testing::Test {
 protected:
  void TearDown() override {
    set_schedule("");
    skip_no_barrier();
  }
};

/// A list that the threads of a kernel append to.
struct Log {
  std::atomic<unsigned> size = 0;
  unsigned entries[512];

  void add(unsigned entry) { entries[size++] = entry; }
  std::vector<unsigned> part(unsigned first, unsigned count) const {
    return {entries + first, entries + first + count};
  }
};

__global__ void log_threads(Log* log) {
  log->add(threadIdx.x);
  __syncthreads();
  log->add(threadIdx.x);
  __syncwarp();
  log->add(threadIdx.x);
}

/// The order of 64 threads before a barrier, after it, and after a __syncwarp.
std::vector<std::vector<unsigned>> thread_orders(const std::string& schedule) {
  set_schedule(schedule);
  Log log;
  EXPECT_EQ(run(1, 64, 0, [&] { log_threads(&log); }), cudaSuccess);
  EXPECT_EQ(log.size, 192u);
  return {log.part(0, 64), log.part(64, 64), log.part(128, 64)};
}

TEST_F(Schedule, ForwardRunsThreadsInAscendingOrder) {
  std::vector<unsigned> ascending(64);
  std::iota(ascending.begin(), ascending.end(), 0u);
  for (const auto& order : thread_orders("forward")) EXPECT_THAT(order, ElementsAreArray(ascending));
}

TEST_F(Schedule, ReverseRunsThreadsInDescendingOrder) {
  std::vector<unsigned> descending(64);
  std::iota(descending.rbegin(), descending.rend(), 0u);
  for (const auto& order : thread_orders("reverse")) EXPECT_THAT(order, ElementsAreArray(descending));
}

TEST_F(Schedule, WarpsRunsOneWarpAsFarAsItGets) {
  std::vector<unsigned> ascending(64);
  std::iota(ascending.begin(), ascending.end(), 0u);
  // Before the barrier each thread in turn; after it a warp's two entries, then the other warp's.
  const auto orders = thread_orders("warps");
  EXPECT_THAT(orders[0], ElementsAreArray(ascending));
  std::vector<unsigned> after = orders[1];
  after.insert(after.end(), orders[2].begin(), orders[2].end());
  for (unsigned i = 0; i < 128; ++i) EXPECT_EQ(after[i], i / 64 * 32 + i % 32) << i;

  std::vector<unsigned> reverse;
  for (const auto& order : thread_orders("warps-reverse")) reverse.insert(reverse.end(), order.begin(), order.end());
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(reverse[i], 63 - i) << i;
  for (unsigned i = 0; i < 128; ++i) EXPECT_EQ(reverse[64 + i], 63 - after[i]) << i;
}

__global__ void wait_for_a_neighbour(unsigned* flag) {
  const std::atomic_ref<unsigned> shared(*flag);
  if (threadIdx.x == 63) shared = 1;
  while (shared == 0) __nanosleep(1);
}

TEST_F(Schedule, WarpsLetsAThreadThatWaitsStandBack) {
  for (const char* schedule : {"warps", "warps-reverse"}) {
    set_schedule(schedule);
    unsigned flag = 0;
    EXPECT_EQ(run(1, 64, 0, [&] { wait_for_a_neighbour(&flag); }), cudaSuccess) << schedule;
  }
}

TEST_F(Schedule, RandomRunsThreadsInAnotherOrderForEachSeed) {
  const auto one = thread_orders("random:1");
  EXPECT_EQ(one, thread_orders("random:1"));
  EXPECT_NE(one, thread_orders("random:2"));
  EXPECT_NE(one[0], one[1]);
  std::vector<unsigned> sorted = one[0];
  std::ranges::sort(sorted);
  for (unsigned i = 0; i < 64; ++i) EXPECT_EQ(sorted[i], i);
  EXPECT_NE(sorted, one[0]);
}

TEST_F(Schedule, MixedGivesEachLaunchOneOfTheOthers) {
  std::vector<unsigned> ascending(64), descending(64);
  std::iota(ascending.begin(), ascending.end(), 0u);
  std::iota(descending.rbegin(), descending.rend(), 0u);
  unsigned forward = 0, reverse = 0, warps = 0, warps_reverse = 0, random = 0;
  for (unsigned i = 0; i < 100; ++i) {
    const auto orders = thread_orders("mixed:1");
    // The first entries after the barrier tell whether all warps advance together.
    const bool is_together = orders[1] == orders[0];
    if (orders[0] == ascending) {
      ++(is_together ? forward : warps);
    } else if (orders[0] == descending) {
      ++(is_together ? reverse : warps_reverse);
    } else {
      ++random;
    }
  }
  for (const unsigned launches : {forward, reverse, warps, warps_reverse, random}) EXPECT_GT(launches, 5u);
}

__global__ void log_blocks(Log* log) {
  log->add(blockIdx.x);
}

std::vector<unsigned> block_order(const std::string& schedule, unsigned blocks) {
  const Environment one_thread("EMULATOR_THREADS", "1");
  set_schedule(schedule);
  Log log;
  EXPECT_EQ(run(blocks, 1, 0, [&] { log_blocks(&log); }), cudaSuccess);
  return log.part(0, blocks);
}

TEST_F(Schedule, OrdersBlocksToo) {
  for (const unsigned blocks : {1u, 2u, 60u, 97u}) {
    std::vector<unsigned> order(blocks);
    std::iota(order.begin(), order.end(), 0u);
    EXPECT_THAT(block_order("forward", blocks), ElementsAreArray(order));
    for (int seed = 0; seed < 10; ++seed) {
      std::vector<unsigned> random = block_order("random:" + std::to_string(seed), blocks);
      std::ranges::sort(random);
      EXPECT_THAT(random, ElementsAreArray(order)) << seed;
    }
    std::ranges::reverse(order);
    EXPECT_THAT(block_order("reverse", blocks), ElementsAreArray(order));
  }
  EXPECT_NE(block_order("random:1", 60), block_order("random:2", 60));
}

TEST_F(Schedule, ComesFromTheEnvironmentUnlessSet) {
  const Environment environment("EMULATOR_SCHEDULE", "reverse");
  EXPECT_EQ(block_order("", 3).front(), 2u);
  EXPECT_EQ(block_order("forward", 3).front(), 0u);
}

TEST_F(Schedule, ABadOneIsNamed) {
  for (const std::string bad :
       {"backward", "random", "random:", "random:-1", "random:1 ", "Forward", "mixed", "mixed:x"}) {
    try {
      set_schedule(bad);
      FAIL() << bad;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr("'" + bad + "'"));
    }
  }
}

// Without its barrier it reads what the neighbour has not written yet: in forward order the next one's, in reverse
// order the one's before.
__global__ void neighbours(float* next, float* before) {
  auto* values = static_cast<float*>(dynamic_shared());
  values[threadIdx.x] = 1.0f;
  __syncthreads();
  next[threadIdx.x] = values[(threadIdx.x + 1) % 64];
  before[threadIdx.x] = values[(threadIdx.x + 63) % 64];
}
constexpr unsigned kBarrier = __LINE__ - 4;

/// Whether the kernel gives what it should, looking at the next neighbour's value and at the one's before.
std::pair<bool, bool> right(const std::string& schedule) {
  set_schedule(schedule);
  std::vector<float> next(64), before(64);
  EXPECT_EQ(run(1, 64, 256, [&] { neighbours(next.data(), before.data()); }), cudaSuccess);
  const std::vector<float> expected(64, 1.0f);
  return {next == expected, before == expected};
}

TEST_F(Schedule, ASkippedBarrierShows) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer would report it";
#endif
  for (const std::string schedule : {"forward", "reverse", "random:1"}) {
    skip_no_barrier();
    EXPECT_EQ(right(schedule), std::pair(true, true));
    skip_barrier("runtime_schedule_test.cu", kBarrier + 1);  // no barrier there
    EXPECT_EQ(right(schedule), std::pair(true, true));
    skip_barrier("another.cu", kBarrier);
    EXPECT_EQ(right(schedule), std::pair(true, true));
    skip_barrier("runtime_schedule_test.cu", kBarrier);
    EXPECT_NE(right(schedule), std::pair(true, true));
  }
  skip_no_barrier();
  const Environment environment("EMULATOR_SKIP_BARRIER", "test/runtime_schedule_test.cu:" + std::to_string(kBarrier));
  EXPECT_FALSE(right("forward").first);
  EXPECT_FALSE(right("reverse").second);
}

}  // namespace
}  // namespace emulator::test
