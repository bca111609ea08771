// What the emulator writes down about the warps of a kernel, and its logical clocks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/barrier.hpp>
#include <emulator/cluster.hpp>
#include <emulator/early_start.hpp>
#include <emulator/mbarrier.hpp>
#include <emulator/shared.hpp>
#include <emulator/trace.hpp>
#include <emulator/warp_roles.hpp>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/test/temporary_folder.hpp"
#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using tutorial::trace::Block;
using tutorial::trace::Event;
using tutorial::trace::Kind;
using tutorial::trace::Trace;

std::source_location here(std::source_location where = std::source_location::current()) {
  return where;
}

/// The events of a kind of a block, in the order of their beginnings.
std::vector<Event> of_kind(const Block& block, Kind kind) {
  std::vector<Event> found;
  for (const Event& event : block.events) {
    if (event.kind == kind) found.push_back(event);
  }
  std::ranges::sort(found, {}, &Event::begin);
  return found;
}

/// What is written down of a kernel on the first `blocks` blocks of the grid.
Trace trace_of(void (*kernel)(), dim3 grid = 1, unsigned threads = 64, unsigned blocks = 8, dim3 cluster = 1,
               cudaError_t expected = cudaSuccess) {
  begin_trace(blocks);
  EXPECT_EQ(launch(grid, threads, 64, nullptr, here(), kernel, nullptr, cluster), expected);
  if (expected != cudaSuccess) (void)cudaGetLastError();
  return end_trace();
}

/// Warp 1 waits at a barrier for warp 0, which waits at a named barrier for nobody but itself, so that its clock goes on.
__global__ void hand_over() {
  auto* barrier = static_cast<std::uint64_t*>(dynamic_shared());
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1, here());
    mbarrier_fence_init(here());
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    for (int i = 0; i < 20; ++i) named_barrier_sync(1, 32, here());
    if (threadIdx.x == 7) mbarrier_arrive(barrier, 0, here());
  } else {
    mbarrier_wait(barrier, 0, here());
  }
}

TEST(Trace, AWaitEndsAfterTheArrivalThatItIsFor) {
  const Trace trace = trace_of(hand_over);
  ASSERT_EQ(trace.blocks.size(), 1u);
  const std::vector<Event> arrivals = of_kind(trace.blocks[0], Kind::arrive);
  const std::vector<Event> waits = of_kind(trace.blocks[0], Kind::wait);
  ASSERT_EQ(arrivals.size(), 1u);
  ASSERT_EQ(waits.size(), 1u) << "32 lanes wait once together";
  EXPECT_EQ(arrivals[0].warp, 0u);
  EXPECT_EQ(waits[0].warp, 1u);
  EXPECT_GT(waits[0].end, arrivals[0].begin);
  EXPECT_LT(waits[0].begin, arrivals[0].begin) << "it began before";
  EXPECT_EQ(waits[0].object, arrivals[0].object);
  EXPECT_EQ(waits[0].phase, 0);
  EXPECT_EQ(of_kind(trace.blocks[0], Kind::named_wait).size(), 20u);
  EXPECT_EQ(of_kind(trace.blocks[0], Kind::block_wait).size(), 2u) << "one of each warp";
}

TEST(Trace, TheClocksOfAWarpNeverGoBack) {
  const Trace trace = trace_of(hand_over);
  std::vector<Event> events = trace.blocks[0].events;
  std::ranges::sort(events, {}, &Event::begin);
  for (unsigned warp = 0; warp < 2; ++warp) {
    std::int64_t last = 0;
    for (const Event& event : events) {
      if (event.warp != warp) continue;
      EXPECT_GE(event.begin, last);
      EXPECT_GE(event.end, event.begin);
      last = event.end;
    }
  }
}

TEST(Trace, IsOfTheFirstBlocks) {
  const Trace trace = trace_of(hand_over, {2, 3}, 64, 3);
  std::vector<std::array<std::uint32_t, 3>> indices;
  for (const Block& block : trace.blocks) indices.push_back(block.index);
  std::ranges::sort(indices);
  EXPECT_THAT(indices, ElementsAre(std::array{0u, 0u, 0u}, std::array{0u, 1u, 0u}, std::array{1u, 0u, 0u}));
}

TEST(Trace, EndsWithItsCall) {
  (void)trace_of(hand_over);
  EXPECT_EQ(run(1, 64, 64, hand_over), cudaSuccess);
  begin_trace(8);
  EXPECT_TRUE(end_trace().blocks.empty());
}

__global__ void wait_in_vain() {
  auto* barrier = static_cast<std::uint64_t*>(dynamic_shared());
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 2, here());
    mbarrier_fence_init(here());
    mbarrier_arrive(barrier, 0, here());
  }
  __syncthreads();
  if (threadIdx.x >= 32) mbarrier_wait(barrier, 0, here());
}

TEST(Trace, AWaitInVainNeverEnds) {
  const Trace trace = trace_of(wait_in_vain, 1, 64, 8, 1, cudaErrorLaunchFailure);
  ASSERT_EQ(trace.blocks.size(), 1u);
  const std::vector<Event> waits = of_kind(trace.blocks[0], Kind::wait);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].end, Event::kNever);
  EXPECT_EQ(waits[0].warp, 1u);
  EXPECT_THAT(trace.stuck, HasSubstr("1 arrival, 0 bytes missing"));
}

/// Each block of a cluster of two arrives at the other one's barrier.
__global__ void meet_in_cluster() {
  auto* barrier = static_cast<std::uint64_t*>(dynamic_shared());
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1, here());
    mbarrier_fence_init(here());
  }
  cluster_arrive(here());
  cluster_wait(here());
  if (threadIdx.x == 0) mbarrier_arrive_at(barrier, 1 - cluster_rank(), here());
  mbarrier_wait_cluster(barrier, 0, here());
  cluster_arrive(here());
  cluster_wait(here());
}

TEST(Trace, TellsTheBlockThatABarrierBelongsTo) {
  const Trace trace = trace_of(meet_in_cluster, 2, 64, 8, 2);
  ASSERT_EQ(trace.blocks.size(), 2u);
  for (int rank = 0; rank < 2; ++rank) {
    const std::vector<Event> arrivals = of_kind(trace.blocks[std::size_t(rank)], Kind::arrive);
    ASSERT_EQ(arrivals.size(), 1u);
    EXPECT_EQ(arrivals[0].peer, 1 - rank);
    for (const Event& wait : of_kind(trace.blocks[std::size_t(rank)], Kind::wait)) {
      const Event there = of_kind(trace.blocks[std::size_t(1 - rank)], Kind::arrive)[0];
      EXPECT_EQ(wait.peer, -1);
      EXPECT_EQ(wait.object, there.object);
      EXPECT_GT(wait.end, there.begin);
    }
  }
}

__global__ void let_next_start() {
  let_next_kernel_start(here());
  for (int i = 0; i < 100; ++i) named_barrier_sync(1, 64, here());
}

__global__ void start_early() {
  wait_for_previous_kernel(here());
}

TEST(Trace, AKernelThatStartsEarlyOverlapsWithTheOneBefore) {
  begin_trace(8);
  EXPECT_EQ(run(1, 64, 0, let_next_start), cudaSuccess);
  EXPECT_EQ(launch(1, 64, 0, nullptr, here(), start_early, nullptr, 1, {}, true), cudaSuccess);
  const Trace trace = end_trace();
  ASSERT_EQ(trace.blocks.size(), 2u);
  const Event first_end = of_kind(trace.blocks[0], Kind::end)[0];
  const Event second_start = of_kind(trace.blocks[1], Kind::start)[0];
  const Event wait = of_kind(trace.blocks[1], Kind::previous_kernel)[0];
  EXPECT_LT(second_start.begin, first_end.end);
  EXPECT_GE(wait.end, first_end.end);
  EXPECT_TRUE(trace.launches[1].starts_early);
}

TEST(Trace, TheEnvironmentAsksForAFileOfTheLaunchThatGotStuck) {
  const tutorial::TemporaryFolder folder;  // another order of threads may run this test at the same time
  const std::string file = folder / "trace.json";
  {
    const Environment traced("EMULATOR_TRACE", file);
    EXPECT_EQ(run(1, 64, 64, hand_over), cudaSuccess);
    EXPECT_EQ(run(1, 64, 64, wait_in_vain), cudaErrorLaunchFailure);
    (void)cudaGetLastError();
    EXPECT_EQ(run(1, 64, 64, hand_over), cudaSuccess) << "of no interest any more";
  }
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  EXPECT_THAT(text.str(), HasSubstr("\"stuck\": \"block (0,0,0) is stuck"));
  EXPECT_THAT(text.str(), HasSubstr("-1, "));
}

}  // namespace
}  // namespace emulator::test
