// Barriers in shared memory: what the emulator says about kernels that use them in a wrong way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/barrier.hpp>
#include <emulator/mbarrier.hpp>
#include <emulator/schedule.hpp>
#include <emulator/shared.hpp>

#include <string>
#include <vector>

#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// The lines of this file, as reports name them.
std::string at_line(unsigned line) {
  return "runtime_mbarrier_test.cu:" + std::to_string(line) + " in ";
}

std::source_location here(std::source_location where = std::source_location::current()) {
  return where;
}

/// What the report says about a kernel of 64 threads that goes wrong.
std::string report_of(void (*kernel)()) {
  EXPECT_EQ(run(1, 64, 0, kernel), cudaErrorLaunchFailure);
  (void)cudaGetLastError();
  return last_report();
}

/// Thread 0 initialises the barrier; afterwards all may use it.
void begin(std::uint64_t& barrier, unsigned count) {
  if (threadIdx.x == 0) {
    mbarrier_init(&barrier, count, here());
    mbarrier_fence_init(here());
  }
  __syncthreads();
}

__global__ void wait_for_more() {
  __shared__ std::uint64_t barrier;
  begin(barrier, 4);
  if (threadIdx.x == 0) mbarrier_arrive(&barrier, 16384, here());
  if (threadIdx.x < 32) mbarrier_wait(&barrier, 0, here());
}
constexpr unsigned kWaitForMore = __LINE__ - 2;

TEST(MBarrier, TheReportOfAStuckBlockTellsWhatIsMissing) {
  EXPECT_THAT(report_of(wait_for_more),
              AllOf(HasSubstr("block (0,0,0) is stuck"), HasSubstr("threads 0-31 wait at "),
                    HasSubstr(at_line(kWaitForMore)), HasSubstr(" for parity 0; 3 arrivals, 16384 bytes missing\n"),
                    HasSubstr("threads 32-63 have returned from the kernel")));
}

__global__ void wait_for_the_other_parity() {
  __shared__ std::uint64_t barrier;
  begin(barrier, 64);
  mbarrier_arrive(&barrier, 0, here());
  mbarrier_wait(&barrier, 0, here());
  mbarrier_wait(&barrier, 1, here());
}
constexpr unsigned kOtherParity = __LINE__ - 2;

TEST(MBarrier, AWaitForAPhaseThatNobodyEndsIsStuck) {
  EXPECT_THAT(report_of(wait_for_the_other_parity),
              AllOf(HasSubstr("threads 0-63 wait at "), HasSubstr(at_line(kOtherParity)),
                    HasSubstr(" for parity 1; 64 arrivals, 0 bytes missing\n")));
}

__global__ void use_before_init() {
  __shared__ std::uint64_t barrier;
  if (threadIdx.x == 5) mbarrier_arrive(&barrier, 0, here());
}
constexpr unsigned kBeforeInit = __LINE__ - 2;

TEST(MBarrier, IsInitialisedBeforeItIsUsed) {
  EXPECT_THAT(report_of(use_before_init), AllOf(HasSubstr("a barrier in shared memory is used before init() at "),
                                                HasSubstr(at_line(kBeforeInit)), HasSubstr("thread (5,0,0)")));
}

__global__ void use_without_fence() {
  __shared__ std::uint64_t barrier;
  if (threadIdx.x == 0) mbarrier_init(&barrier, 64, here());
  __syncthreads();
  mbarrier_arrive(&barrier, 0, here());
}
constexpr unsigned kWithoutFence = __LINE__ - 2;

TEST(MBarrier, IsFencedBeforeItIsUsed) {
  EXPECT_THAT(report_of(use_without_fence), AllOf(HasSubstr("no fence_barrier_init() has followed its init() at "),
                                                  HasSubstr(at_line(kWithoutFence))));
}

__global__ void fence_of_another_thread() {
  __shared__ std::uint64_t barrier;
  if (threadIdx.x == 0) mbarrier_init(&barrier, 64, here());
  __syncthreads();
  if (threadIdx.x == 1) mbarrier_fence_init(here());
  __syncthreads();
  mbarrier_arrive(&barrier, 0, here());
}

TEST(MBarrier, IsFencedByTheThreadThatInitialisedIt) {
  EXPECT_THAT(report_of(fence_of_another_thread), HasSubstr("no fence_barrier_init() has followed its init() at "));
}

__global__ void overwrite() {
  __shared__ std::uint64_t barrier;
  begin(barrier, 64);
  if (threadIdx.x == 0) barrier = 0;
  __syncthreads();
  mbarrier_wait(&barrier, 1, here());
}

TEST(MBarrier, ItsBytesAreNotOverwritten) {
  EXPECT_THAT(report_of(overwrite), HasSubstr("the 8 bytes of a barrier in shared memory have been overwritten at "));
}

__global__ void initialise_twice() {
  __shared__ std::uint64_t barrier;
  begin(barrier, 64);
  begin(barrier, 64);
}

TEST(MBarrier, IsInitialisedOnce) {
  EXPECT_THAT(report_of(initialise_twice), HasSubstr("a barrier in shared memory is initialised a second time at "));
}

__global__ void count_of_zero() {
  __shared__ std::uint64_t barrier;
  begin(barrier, 0);
}

TEST(MBarrier, CountsAtLeastOneArrival) {
  EXPECT_THAT(report_of(count_of_zero), HasSubstr("the count of a barrier is between 1 and 1048575 at "));
}

__global__ void arrive_too_often() {
  __shared__ std::uint64_t barrier;
  begin(barrier, 1);
  if (threadIdx.x > 1) return;
  mbarrier_arrive(&barrier, 128, here());
}
constexpr unsigned kTooOften = __LINE__ - 2;

TEST(MBarrier, AnArrivalTooManyIsReported) {
  EXPECT_THAT(report_of(arrive_too_often),
              AllOf(HasSubstr("one arrival too many: this phase of the barrier has had all of its 1, "),
                    HasSubstr(at_line(kTooOften))));
}

__global__ void expect_too_many_bytes() {
  __shared__ std::uint64_t barrier;
  begin(barrier, 64);
  mbarrier_arrive(&barrier, 1 << 20, here());
}

TEST(MBarrier, ExpectsNoMoreBytesThanItCanCount) {
  EXPECT_THAT(report_of(expect_too_many_bytes), HasSubstr("can expect 1048575 bytes at most at "));
}

// Thread 62 ends two phases, and thread 63, which waits for the first, goes on only after the second.
__global__ void miss_a_phase() {
  __shared__ std::uint64_t barrier;
  begin(barrier, 1);
  if (threadIdx.x == 63) {
    mbarrier_wait(&barrier, 0, here());
  } else if (threadIdx.x == 62) {
    mbarrier_arrive(&barrier, 0, here());
    mbarrier_arrive(&barrier, 0, here());
  }
}
constexpr unsigned kMissed = __LINE__ - 6;

TEST(MBarrier, APhaseThatWasMissedIsReported) {
  set_schedule("reverse");  // thread 63 waits before thread 62 arrives
  EXPECT_THAT(report_of(miss_a_phase), AllOf(HasSubstr("the next phase has ended, too, before this thread went on"),
                                             HasSubstr(at_line(kMissed))));
  set_schedule("");
}

// --- what is skipped ---

__global__ void hand_over(int* out) {
  __shared__ std::uint64_t barrier;
  auto* values = static_cast<int*>(dynamic_shared());  // new in each launch under every sanitizer
  if (threadIdx.x == 0) {
    mbarrier_init(&barrier, 64, here());
    mbarrier_fence_init(here());
  }
  __syncthreads();
  values[threadIdx.x] = 1;
  mbarrier_arrive(&barrier, 0, here());
  mbarrier_wait(&barrier, 0, here());
  out[threadIdx.x] = values[63 - threadIdx.x];
}
constexpr unsigned kWait = __LINE__ - 3, kArrive = __LINE__ - 4, kFence = __LINE__ - 8;

class SkippedMBarrier : public testing::Test {
 protected:
  void TearDown() override { skip_no_barrier(); }

  static bool is_right(unsigned skipped) {
    skip_barrier("runtime_mbarrier_test.cu", skipped);
    std::vector<int> out(64);
    const cudaError_t error = run(1, 64, 256, [&] { hand_over(out.data()); });
    (void)cudaGetLastError();
    return error == cudaSuccess && out == std::vector<int>(64, 1);
  }
};

TEST_F(SkippedMBarrier, AWaitAnArrivalOrAFenceThatIsLeftOutShows) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer would report it";
#endif
  EXPECT_TRUE(is_right(kWait + 2));
  EXPECT_FALSE(is_right(kWait));
  EXPECT_FALSE(is_right(kArrive));
  EXPECT_THAT(last_report(), HasSubstr("64 arrivals, 0 bytes missing"));
  EXPECT_FALSE(is_right(kFence));
  EXPECT_THAT(last_report(), HasSubstr("no fence_barrier_init()"));
}

}  // namespace
}  // namespace emulator::test
