// Products of warpgroups: when they happen, and what the emulator says about kernels that use them in a wrong way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/barrier.hpp>
#include <emulator/schedule.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "common/device/bulk_copy.cuh"
#include "common/device/cluster.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/wgmma.cuh"
#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using tutorial::Barrier;
using tutorial::Major;
using tutorial::SharedFactor;
using tutorial::wgmma;
using tutorial::wgmma_commit;
using tutorial::wgmma_fence;
using tutorial::wgmma_wait;

constexpr unsigned kPanel = 8192;               // bytes: 64 rows
constexpr std::uint16_t kOne = 0x3F80;          // bf16
constexpr std::uint16_t kTwo = 0x4000;          // bf16
constexpr std::uint32_t kTwoOnes = 0x3F803F80;  // a register of A
constexpr float kSum = 16;                      // of one product of ones

/// The lines of this file, as reports name them.
std::string at_line(unsigned line) {
  return "runtime_wgmma_test.cu:" + std::to_string(line) + " in ";
}

/// Runs a warpgroup, with shared memory for two panels.
cudaError_t run_kernel(std::function<void()> kernel, unsigned threads = 128) {
  const cudaError_t error = run(1, threads, 2 * kPanel, std::move(kernel));
  (void)cudaGetLastError();
  return error;
}

/// What the report says about a kernel that goes wrong.
std::string report_of(std::function<void()> kernel, unsigned threads = 128) {
  EXPECT_EQ(run_kernel(std::move(kernel), threads), cudaErrorLaunchFailure);
  return last_report();
}

/// The first sum of thread 127 of a kernel that ends as it should.
float sum_of(const std::function<void(float*)>& kernel) {
  float sum = 0;
  EXPECT_EQ(run_kernel([&] { kernel(&sum); }), cudaSuccess);
  return sum;
}

__nv_bfloat16* panels() {
  return tutorial::dynamic_shared<__nv_bfloat16, tutorial::kTileAlignment>();
}

SharedFactor<Major::kK> factor() {
  return {panels(), kPanel};
}

/// The warpgroup writes its share of the first panel; all elements are `value`.
void write_panel(std::uint16_t value) {
  auto* elements = reinterpret_cast<std::uint16_t*>(panels());
  for (unsigned i = threadIdx.x; i < kPanel / 2; i += 128) tutorial::store_for_copies(&elements[i], value);
}

/// The whole panel is ones, for products, too.
void fill_panel() {
  write_panel(kOne);
  tutorial::fence_async_proxy();
  __syncthreads();
}

/// Products happen as late as they may.
class LateWgmma : public testing::Test {
  const Environment late_{"EMULATOR_ASYNC", "late"};
};

// --- when products happen ---

struct Seen {
  float after_issue, after_one_wait, after_wait;
};

__global__ void watch(Seen* seen) {
  fill_panel();
  float first[8], second[8];
  wgmma_fence(first, second);
  wgmma<16>(first, factor(), factor(), false);
  wgmma_commit();
  wgmma<16>(second, factor(), factor(), false);
  wgmma<16>(second, factor(), factor(), true);
  wgmma_commit();
  const Seen mine{first[0], 0, 0};
  wgmma_wait<1>(first);
  const float after_one = second[0];
  wgmma_wait<0>(second);
  if (threadIdx.x == 127) *seen = {mine.after_issue, after_one, first[0] + second[0]};
}

Seen seen_products() {
  Seen seen{};
  EXPECT_EQ(run_kernel([&] { watch(&seen); }), cudaSuccess);
  EXPECT_EQ(seen.after_wait, 3 * kSum);
  return seen;
}

TEST_F(LateWgmma, SumsAreNaNUntilTheWaitForTheirLastProduct) {
  const Seen seen = seen_products();
  EXPECT_TRUE(std::isnan(seen.after_issue));
  EXPECT_TRUE(std::isnan(seen.after_one_wait));
}

TEST(Wgmma, SumsAreThereAtOnceIfAskedFor) {
  const Environment early("EMULATOR_ASYNC", "early");
  const Seen seen = seen_products();
  EXPECT_EQ(seen.after_issue, kSum);
  EXPECT_EQ(seen.after_one_wait, 2 * kSum);
}

TEST(Wgmma, HappensNowOrLater) {
  bool is_early = false, is_late = false;
  for (int seed = 0; seed < 60; ++seed) {
    const Environment random("EMULATOR_ASYNC", "random:" + std::to_string(seed));
    (std::isnan(seen_products().after_issue) ? is_late : is_early) = true;
  }
  EXPECT_TRUE(is_early);
  EXPECT_TRUE(is_late);
}

// --- shared memory ---

__global__ void overwrite(float* out, bool wait_first) {
  fill_panel();
  float d[8];
  wgmma_fence(d);
  wgmma<16>(d, factor(), factor(), false);
  wgmma_commit();
  if (wait_first) wgmma_wait<0>(d);
  __syncthreads();
  write_panel(0);
  tutorial::fence_async_proxy();
  __syncthreads();
  if (!wait_first) wgmma_wait<0>(d);
  if (threadIdx.x == 127) *out = d[0];
}

TEST_F(LateWgmma, ATileThatIsOverwrittenTooEarlyGivesWrongSums) {
  EXPECT_EQ(sum_of([](float* out) { overwrite(out, true); }), kSum);
  EXPECT_EQ(sum_of([](float* out) { overwrite(out, false); }), 0);
}

/// A fifth warp loads a tile of ones and then, over it, a tile of zeros.
__global__ void refill(const tutorial::TensorMap ones, const tutorial::TensorMap zeros, float* out, bool wait_first) {
  __shared__ Barrier full, empty;
  if (threadIdx.x == 0) {
    full.init(1), empty.init(128);
    tutorial::fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 128) {
    full.arrive_expect(kPanel);
    tutorial::load_tile(ones, panels(), full, {});
    empty.wait(0);
    full.arrive_expect(kPanel);
    tutorial::load_tile(zeros, panels(), full, {});
  } else if (threadIdx.x < 128) {
    float d[8];
    full.wait(0);
    wgmma_fence(d);
    wgmma<16>(d, factor(), factor(), false);
    wgmma_commit();
    if (wait_first) wgmma_wait<0>(d);
    empty.arrive();
    full.wait(1);
    if (!wait_first) wgmma_wait<0>(d);
    if (threadIdx.x == 127) *out = d[0];
  }
}

/// A tensor of one tile whose elements are all `value`.
class Tensor {
 public:
  explicit Tensor(std::uint16_t value) : memory_(64 * 64 + 8, value) {}

  tutorial::TensorMap map() {
    auto* begin = reinterpret_cast<__nv_bfloat16*>((reinterpret_cast<std::uintptr_t>(memory_.data()) + 15) / 16 * 16);
    return tutorial::tile_map(tutorial::packed(begin, 1, 64, 64), {.B = 1, .H = 1, .L = 64, .D = 64}, 64);
  }

 private:
  std::vector<std::uint16_t> memory_;
};

TEST_F(LateWgmma, ATileThatIsReleasedTooEarlyGivesWrongSums) {
  Tensor ones(kOne), zeros(0);
  for (const bool wait_first : {true, false}) {
    float sum = 0;
    EXPECT_EQ(run_kernel([&] { refill(ones.map(), zeros.map(), &sum, wait_first); }, 160), cudaSuccess);
    EXPECT_EQ(sum, wait_first ? kSum : 0);
  }
}

__global__ void write_without_fence(float* out, bool fence) {
  write_panel(kOne);
  if (fence) tutorial::fence_async_proxy();
  __syncthreads();
  float d[8];
  wgmma_fence(d);
  wgmma<16>(d, factor(), factor(), false);
  wgmma_commit();
  wgmma_wait<0>(d);
  if (threadIdx.x == 127) *out = d[0];
}
constexpr unsigned kWriteBarrier = __LINE__ - 8;

TEST(Wgmma, DoesNotSeeWhatNoFenceFollows) {
  EXPECT_EQ(sum_of([](float* out) { write_without_fence(out, true); }), kSum);
  EXPECT_TRUE(std::isnan(sum_of([](float* out) { write_without_fence(out, false); })));
}

TEST(Wgmma, DoesNotWaitForOtherWarpsThatWriteTheTile) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer would report it";
#endif
  set_schedule("warps-reverse");
  skip_barrier("runtime_wgmma_test.cu", kWriteBarrier);
  EXPECT_TRUE(std::isnan(sum_of([](float* out) { write_without_fence(out, true); })));
  skip_no_barrier();
  set_schedule("");
}

__global__ void use_panel(const __nv_bfloat16* panel, unsigned panel_bytes) {
  float d[8];
  wgmma_fence(d);
  const SharedFactor<Major::kK> b(panel, panel_bytes);
  wgmma<16>(d, b.along_k(0), b, false);
}
constexpr unsigned kPanelLine = __LINE__ - 3;

TEST(Wgmma, NeedsAlignedPanelsInDynamicSharedMemory) {
  EXPECT_THAT(report_of([] { use_panel(panels() + 256, kPanel); }),
              AllOf(HasSubstr("is not a multiple of 1024"), HasSubstr(at_line(kPanelLine))));
  EXPECT_THAT(report_of([] { use_panel(panels(), 512); }),
              AllOf(HasSubstr("is a multiple of 1024 bytes below 2^18"), HasSubstr(at_line(kPanelLine))));
  EXPECT_THAT(report_of([] { use_panel(panels() + kPanel, kPanel); }),
              AllOf(HasSubstr("a factor is not in dynamic shared memory"), HasSubstr(at_line(kPanelLine))));
  EXPECT_THAT(report_of([] { use_panel(panels() + kPanel - 512, kPanel); }),
              AllOf(HasSubstr("a factor of this product reaches beyond the block's dynamic shared memory"),
                    HasSubstr(at_line(kPanelLine + 1))));
}

__global__ void go_along(int k, int n_of_k_major, int n_of_mn_major) {
  (void)factor().along_k(k);
  (void)factor().along_mn(n_of_k_major);
  (void)SharedFactor<Major::kMn>(panels(), kPanel).along_mn(n_of_mn_major);
}
constexpr unsigned kAlong = __LINE__ - 4;

TEST(Wgmma, FactorsGoOnAtWholeSteps) {
  EXPECT_EQ(run_kernel([] { go_along(16, 8, 64); }), cudaSuccess);
  EXPECT_THAT(report_of([] { go_along(8, 8, 64); }),
              AllOf(HasSubstr("at a multiple of 16 along k"), HasSubstr(at_line(kAlong))));
  EXPECT_THAT(report_of([] { go_along(16, 4, 64); }),
              AllOf(HasSubstr("at a multiple of 8 along m or n"), HasSubstr(at_line(kAlong + 1))));
  EXPECT_THAT(report_of([] { go_along(16, 8, 32); }),
              AllOf(HasSubstr("at a multiple of 64 along m or n"), HasSubstr(at_line(kAlong + 2))));
}

// --- registers ---

enum class Registers {
  right,
  sums_not_fenced,
  a_not_fenced,
  sums_changed,
  a_changed,
  sums_changed_under_way,
  sums_scaled_under_way,
  a_changed_under_way,
  sums_changed_before_the_second,
  not_named
};

__global__ void use_registers(Registers fault, float* out) {
  fill_panel();
  float d[8] = {};
  std::uint32_t a[4] = {kTwoOnes, kTwoOnes, kTwoOnes, kTwoOnes};
  const bool is_last = threadIdx.x == 127;
  if (fault == Registers::a_not_fenced) wgmma_fence(d);
  if (fault == Registers::sums_not_fenced) wgmma_fence(a);
  if (fault != Registers::a_not_fenced && fault != Registers::sums_not_fenced) wgmma_fence(d, a);
  if (fault == Registers::sums_changed && is_last) d[7] = 1;
  if (fault == Registers::a_changed && is_last) a[3] = 0;
  wgmma<16>(d, a, factor(), true);
  if (fault == Registers::sums_changed_before_the_second && is_last) d[0] = 1;
  wgmma<16>(d, a, factor(), true);
  wgmma_commit();
  if (fault == Registers::sums_changed_under_way && is_last) d[0] = 1;
  if (fault == Registers::sums_scaled_under_way && is_last) d[0] *= 0.5f;
  if (fault == Registers::a_changed_under_way && is_last) a[1] = 0;
  if (fault == Registers::not_named) wgmma_wait<0>(a);
  if (fault != Registers::not_named) wgmma_wait<0>(d, a);
  if (threadIdx.x == 127) *out = d[0];
}
constexpr unsigned kFirst = __LINE__ - 11, kSecond = __LINE__ - 9, kNotNaming = __LINE__ - 4;

std::string report_of_registers(Registers fault) {
  float out = 0;
  return report_of([&] { use_registers(fault, &out); });
}

TEST(Wgmma, RegistersAreLeftAlone) {
  for (const char* when : {"late", "early", "random:1"}) {
    const Environment async("EMULATOR_ASYNC", when);
    EXPECT_EQ(sum_of([](float* out) { use_registers(Registers::right, out); }), 2 * kSum);
    EXPECT_THAT(
        report_of_registers(Registers::sums_changed_before_the_second),
        AllOf(HasSubstr("the sums of this product were written while another product of them was under way at "),
              HasSubstr(at_line(kSecond)), HasSubstr("thread (127,0,0)")));
    for (const Registers fault : {Registers::sums_changed_under_way, Registers::sums_scaled_under_way}) {
      EXPECT_THAT(report_of_registers(fault),
                  AllOf(HasSubstr("the sums of this product were written before the wait for it at "),
                        HasSubstr(at_line(kSecond)), HasSubstr("thread (127,0,0)")));
    }
    EXPECT_THAT(report_of_registers(Registers::a_changed_under_way),
                AllOf(HasSubstr("the registers of A of this product were written before the wait for it at "),
                      HasSubstr(at_line(kFirst)), HasSubstr("thread (127,0,0)")));
  }
}

TEST(Wgmma, RegistersAreFenced) {
  EXPECT_THAT(report_of_registers(Registers::sums_not_fenced),
              AllOf(HasSubstr("no wgmma_fence() has named the sums of this product since the last wait for them at "),
                    HasSubstr(at_line(kFirst))));
  EXPECT_THAT(report_of_registers(Registers::a_not_fenced),
              AllOf(HasSubstr("no wgmma_fence() has named the registers of A of this product at "),
                    HasSubstr(at_line(kFirst))));
  EXPECT_THAT(report_of_registers(Registers::sums_changed),
              AllOf(HasSubstr("the sums of this product were written after the wgmma_fence() that names them at "),
                    HasSubstr(at_line(kFirst)), HasSubstr("thread (127,0,0)")));
  EXPECT_THAT(
      report_of_registers(Registers::a_changed),
      AllOf(HasSubstr("the registers of A of this product were written after the wgmma_fence() that names them at "),
            HasSubstr(at_line(kFirst)), HasSubstr("thread (127,0,0)")));
}

TEST(Wgmma, AWaitNamesTheSumsThatItEnds) {
  EXPECT_THAT(report_of_registers(Registers::not_named),
              AllOf(HasSubstr("the compiler may read the sums of the product at "), HasSubstr(at_line(kSecond)),
                    HasSubstr("too early: the wait for it does not name them, at "), HasSubstr(at_line(kNotNaming))));
}

__global__ void multiply_after_wait(bool fence) {
  fill_panel();
  float d[8];
  wgmma_fence(d);
  for (int n = 0; n < 2; ++n) {
    if (n > 0 && fence) wgmma_fence(d);
    wgmma<16>(d, factor(), factor(), false);
    wgmma_commit();
    wgmma_wait<0>(d);
  }
}
constexpr unsigned kAfterWait = __LINE__ - 5;

TEST(Wgmma, AFenceFollowsEachWait) {
  EXPECT_EQ(run_kernel([] { multiply_after_wait(true); }), cudaSuccess);
  EXPECT_THAT(report_of([] { multiply_after_wait(false); }),
              AllOf(HasSubstr("since the last wait for them"), HasSubstr(at_line(kAfterWait))));
}

__global__ void use_two_widths(bool wide_first) {
  fill_panel();
  float d[16];
  auto& half = reinterpret_cast<float(&)[8]>(d[8]);
  wgmma_fence(d);
  if (wide_first) wgmma<32>(d, factor(), factor(), false);
  wgmma<16>(half, factor(), factor(), false);
  wgmma<32>(d, factor(), factor(), false);
}
constexpr unsigned kHalf = __LINE__ - 3, kWide = __LINE__ - 2;

TEST(Wgmma, AnArrayIsForOneWidth) {
  EXPECT_THAT(report_of([] { use_two_widths(true); }),
              AllOf(HasSubstr("the sums of this product overlap those of another width that is under way at "),
                    HasSubstr(at_line(kHalf))));
  EXPECT_THAT(report_of([] { use_two_widths(false); }), HasSubstr(at_line(kWide)));
}

// --- who calls ---

__global__ void leave_out(unsigned from, unsigned to, bool product, bool commit) {
  fill_panel();
  float d[8];
  const bool takes_part = threadIdx.x < from || threadIdx.x >= to;
  wgmma_fence(d);
  if (takes_part || product) wgmma<16>(d, factor(), factor(), false);
  if (takes_part || commit) wgmma_commit();
  wgmma_wait<0>(d);
}
constexpr unsigned kLeftOut = __LINE__ - 4, kLeftOutCommit = __LINE__ - 3, kLeftOutWait = __LINE__ - 2;

TEST(Wgmma, AllWarpsMakeTheSameCalls) {
  EXPECT_EQ(run_kernel([] { leave_out(32, 64, true, true); }), cudaSuccess);
  const auto differ = HasSubstr("the warps of a warpgroup differ: ");
  EXPECT_THAT(report_of([] { leave_out(32, 64, false, true); }),
              AllOf(differ, HasSubstr("a product of width 16 at "), HasSubstr(at_line(kLeftOut)), HasSubstr("a commit"),
                    HasSubstr(at_line(kLeftOutCommit))));
  EXPECT_THAT(report_of([] { leave_out(96, 128, true, false); }),
              AllOf(differ, HasSubstr("a commit"), HasSubstr(at_line(kLeftOutCommit)), HasSubstr("a wait"),
                    HasSubstr(at_line(kLeftOutWait))));
}

TEST(Wgmma, AllLanesCome) {
  EXPECT_THAT(report_of([] { leave_out(37, 38, false, true); }),
              AllOf(HasSubstr("block (0,0,0) is stuck"),
                    HasSubstr("threads 32-36, 38-63 wait for the lanes 0xFFFFFFFF at "), HasSubstr(at_line(kLeftOut)),
                    HasSubstr("thread 37 waits for the lanes 0xFFFFFFFF at "), HasSubstr(at_line(kLeftOutCommit))));
}

__global__ void leave_early() {
  fill_panel();
  if (threadIdx.x >= 96) return;
  float d[8];
  wgmma_fence(d);
  wgmma<16>(d, factor(), factor(), false);
  wgmma_commit();
  wgmma_wait<0>(d);
}
constexpr unsigned kWithoutTheLast = __LINE__ - 5;

TEST(Wgmma, NoWarpIsMissing) {
  EXPECT_THAT(report_of(leave_early),
              AllOf(HasSubstr("the block has ended, but warp 3 has not come to a fence of its warpgroup at "),
                    HasSubstr(at_line(kWithoutTheLast))));
  EXPECT_THAT(report_of([] { use_panel(panels(), kPanel); }, 96),
              AllOf(HasSubstr("a product is for four whole warps"), HasSubstr(at_line(kPanelLine - 1))));
}

__global__ void differ(bool in_lanes) {
  fill_panel();
  float d[8];
  wgmma_fence(d);
  wgmma<16>(d, factor(), factor().along_k((in_lanes ? threadIdx.x % 32 : threadIdx.x / 32) == 2 ? 16 : 0), false);
}
constexpr unsigned kDiffer = __LINE__ - 2;

TEST(Wgmma, AllGiveTheSameFactors) {
  EXPECT_THAT(report_of([] { differ(true); }),
              AllOf(HasSubstr("the lanes of a warp call wgmma with different factors or numbers at "),
                    HasSubstr(at_line(kDiffer))));
  EXPECT_THAT(report_of([] { differ(false); }),
              AllOf(HasSubstr("the warps of a warpgroup differ: a product of width 16 at "),
                    HasSubstr("with other factors, numbers or line at "), HasSubstr(at_line(kDiffer))));
}

// --- clusters ---

// Block 0 loads a panel for both blocks of a pair, and each multiplies its own copy. Block 1 may forget to wait.
__global__ void multiply_in_pair(const tutorial::TensorMap map, bool wait, float* sums) {
  auto& full = *reinterpret_cast<Barrier*>(panels() + kPanel / sizeof(__nv_bfloat16));
  if (threadIdx.x == 0) {
    full.init(1);
    tutorial::fence_barrier_init();
    full.arrive_expect(kPanel);
  }
  tutorial::cluster_sync();
  const unsigned rank = tutorial::cluster_rank();
  if (rank == 0 && threadIdx.x == 0) tutorial::load_tile_multicast(map, panels(), full, {}, 3);
  full.wait(0);
  if (rank == 1) {
    write_panel(kTwo);
    tutorial::fence_async_proxy();
    __syncthreads();
  }
  float d[8];
  wgmma_fence(d);
  wgmma<16>(d, factor(), factor(), false);
  wgmma_commit();
  if (rank == 0 || wait) wgmma_wait<0>(d);
  if (threadIdx.x == 127) sums[blockIdx.x] = d[0];
  tutorial::cluster_sync();
}
constexpr unsigned kInPair = __LINE__ - 6;

/// Runs pairs of blocks on a tensor of ones. @param sums one per block
cudaError_t run_pairs(bool wait, std::vector<float>& sums) {
  std::vector<std::uint16_t> memory(64 * 64 + 8, kOne);
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  auto* data = reinterpret_cast<__nv_bfloat16*>(memory.data() + (16 - address % 16) % 16 / 2);
  const tutorial::TensorMap map =
      tutorial::tile_map(tutorial::packed(data, 1, 64, 64), {.B = 1, .H = 1, .L = 64, .D = 64}, 64);
  const auto blocks = static_cast<unsigned>(sums.size());
  const cudaError_t error = launch(
      blocks, 128, 2 * kPanel, nullptr, std::source_location::current(),
      [&] { multiply_in_pair(map, wait, sums.data()); }, nullptr, 2);
  (void)cudaGetLastError();
  return error;
}

TEST(Wgmma, EachBlockOfAClusterHasItsOwnProducts) {
  for (const char* when : {"late", "early", "random:1"}) {
    const Environment async("EMULATOR_ASYNC", when);
    std::vector<float> sums(6);
    EXPECT_EQ(run_pairs(true, sums), cudaSuccess);
    EXPECT_THAT(sums, testing::ElementsAre(kSum, 4 * kSum, kSum, 4 * kSum, kSum, 4 * kSum));
  }
}

TEST(Wgmma, AProductThatOneBlockOfAClusterDoesNotWaitForIsReported) {
  std::vector<float> sums(2);
  EXPECT_EQ(run_pairs(false, sums), cudaErrorLaunchFailure);
  EXPECT_THAT(last_report(), AllOf(HasSubstr("the block has ended, but nobody has waited for this product at "),
                                   HasSubstr(at_line(kInPair)), HasSubstr("block (1,0,0), thread (0,0,0)")));
}

// --- what nobody waits for, and what is skipped ---

__global__ void multiply_once(bool commit, bool wait, float* out) {
  fill_panel();
  float d[8] = {};
  wgmma_fence(d);
  wgmma<16>(d, factor(), factor(), true);
  if (commit) wgmma_commit();
  if (wait) wgmma_wait<0>(d);
  if (threadIdx.x == 127) *out = d[0];
}
constexpr unsigned kOnlyFence = __LINE__ - 6, kOnly = __LINE__ - 5, kOnlyCommit = __LINE__ - 4,
                   kOnlyWait = __LINE__ - 4;

std::string report_of_one(bool commit, bool wait) {
  float out = 0;
  return report_of([&] { multiply_once(commit, wait, &out); });
}

TEST(Wgmma, AProductThatNobodyWaitsForIsReported) {
  for (const char* when : {"late", "early", "random:1"}) {
    const Environment async("EMULATOR_ASYNC", when);
    EXPECT_EQ(sum_of([](float* out) { multiply_once(true, true, out); }), kSum);
    EXPECT_THAT(
        report_of_one(true, false),
        AllOf(HasSubstr("the block has ended, but nobody has waited for this product at "), HasSubstr(at_line(kOnly))));
    EXPECT_THAT(report_of_one(false, true),
                AllOf(HasSubstr("the block has ended, but no wgmma_commit() has followed this product at "),
                      HasSubstr(at_line(kOnly))));
  }
}

TEST(Wgmma, AFenceACommitOrAWaitThatIsLeftOutShows) {
  const std::pair<unsigned, const char*> lines[] = {{kOnlyFence, "no wgmma_fence() has named"},
                                                    {kOnlyCommit, "no wgmma_commit() has followed"},
                                                    {kOnlyWait, "nobody has waited for this product"}};
  for (const auto& [line, report] : lines) {
    skip_barrier("runtime_wgmma_test.cu", line);
    EXPECT_THAT(report_of_one(true, true), HasSubstr(report));
  }
  skip_no_barrier();
}

}  // namespace
}  // namespace emulator::test
