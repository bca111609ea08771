// Named barriers and registers: what the emulator says about kernels that use them in a wrong way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "common/device/named_barrier.cuh"
#include "common/device/registers.cuh"
#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tutorial::arrive_at_named_barrier;
using tutorial::decrease_registers;
using tutorial::increase_registers;
using tutorial::wait_at_named_barrier;

/// The lines of this file, as reports name them.
std::string at_line(unsigned line) {
  return "runtime_warp_roles_test.cu:" + std::to_string(line) + " in ";
}

/// What the report says about a kernel that goes wrong.
std::string report_of(unsigned threads, std::function<void()> kernel) {
  EXPECT_EQ(run(1, threads, 0, std::move(kernel)), cudaErrorLaunchFailure);
  (void)cudaGetLastError();
  return last_report();
}

__global__ void wait_for_too_many() {
  if (threadIdx.x < 96) wait_at_named_barrier(3, 128);
}
constexpr unsigned kTooMany = __LINE__ - 2;

TEST(NamedBarrier, AStuckOneIsNamedWithWhatIsMissing) {
  EXPECT_THAT(report_of(128, wait_for_too_many),
              AllOf(HasSubstr("threads 0-95 wait at named barrier 3, "), HasSubstr(at_line(kTooMany)),
                    HasSubstr("; 32 of its 128 threads are missing\n"), HasSubstr("threads 96-127 have returned")));
}

__global__ void disagree() {
  wait_at_named_barrier(1, threadIdx.x < 64 ? 128 : 96);
}

TEST(NamedBarrier, AllGiveTheSameNumberOfThreads) {
  EXPECT_THAT(report_of(128, disagree), HasSubstr("named barrier 1 is for "));
}

__global__ void use(unsigned id, unsigned threads) {
  wait_at_named_barrier(id, threads);
}

TEST(NamedBarrier, HasANumberBetween1And15) {
  for (const unsigned id : {0u, 16u, 99u}) {
    EXPECT_THAT(report_of(32, [=] { use(id, 32); }), HasSubstr("a named barrier has a number between 1 and 15"));
  }
}

TEST(NamedBarrier, IsForWholeWarps) {
  for (const unsigned threads : {0u, 33u}) {
    EXPECT_THAT(report_of(64, [=] { use(1, threads); }), HasSubstr("is for a multiple of 32 threads"));
  }
}

__global__ void arrive_in_halves() {
  if (threadIdx.x % 2 == 0) arrive_at_named_barrier(1, 32);
}

TEST(NamedBarrier, AllLanesOfAWarpCome) {
  EXPECT_THAT(report_of(64, arrive_in_halves),
              HasSubstr("a warp has come to a named barrier with a part of its lanes"));
}

// --- registers ---

__global__ void take_too_many() {
  if (threadIdx.x < 128) {
    decrease_registers<40>();
  } else {
    increase_registers<240>();
  }
}
constexpr unsigned kTakeTooMany = __LINE__ - 3;

TEST(Registers, MoreThanThereAreIsStuck) {
  // 384 threads have 168 each: 40 + 2 x 240 is 16 more than 3 x 168.
  EXPECT_THAT(report_of(384, take_too_many), AllOf(HasSubstr("for registers at "), HasSubstr(at_line(kTakeTooMany)),
                                                   HasSubstr("per thread and warp are free")));
}

__global__ void take_what_there_is() {
  if (threadIdx.x < 128) {
    decrease_registers<24>();
  } else {
    increase_registers<240>();
  }
}

TEST(Registers, ChangesAreCountedPerWarp) {
  emulator::reset_counters();
  EXPECT_EQ(run(2, 384, 0, take_what_there_is), cudaSuccess);
  EXPECT_EQ(emulator::counters().register_changes, 2u * 12);
}

__global__ void wrong_direction(bool increase) {
  if (increase) {
    increase_registers<96>();
  } else {
    decrease_registers<240>();
  }
}

TEST(Registers, IncreaseAndDecreaseMeanIt) {
  EXPECT_THAT(report_of(512, [] { wrong_direction(true); }),
              HasSubstr("the warp's threads have 128 registers, which cannot increase to 96"));
  EXPECT_THAT(report_of(512, [] { wrong_direction(false); }),
              HasSubstr("the warp's threads have 128 registers, which cannot decrease to 240"));
}

__global__ void differ() {
  if (threadIdx.x >= 32) decrease_registers<64>();
}

TEST(Registers, TheWarpsOfAWarpgroupAgree) {
  EXPECT_THAT(report_of(128, differ), HasSubstr("the warps of a warpgroup have changed their registers to different"));
}

}  // namespace
}  // namespace emulator::test
