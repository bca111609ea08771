// Clusters: what the emulator says about kernels that reach into other blocks in a wrong way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/barrier.hpp>
#include <emulator/counters.hpp>
#include <emulator/schedule.hpp>

#include <atomic>
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
#include "common/device/push_shared.cuh"
#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using tutorial::Barrier;
using tutorial::cluster_arrive;
using tutorial::cluster_rank;
using tutorial::cluster_sync;
using tutorial::cluster_wait;
using tutorial::load_tile_multicast;
using tutorial::peer_shared;
using tutorial::push_shared;
using tutorial::TensorMap;

/// The lines of this file, as reports name them.
std::string at_line(unsigned line) {
  return "runtime_cluster_test.cu:" + std::to_string(line) + " in ";
}

constexpr int kRows = 8;
constexpr unsigned kTile = kRows * 64;  // elements
constexpr unsigned kTileBytes = tutorial::tile_bytes(kRows);
constexpr std::uint16_t kNaN = 0xFFFF;

/// The dynamic shared memory of a block.
struct Shared {
  std::uint16_t tile[kTile];
  std::uint16_t outgoing[kTile];
  float values[64];
  Barrier full, empty;
};

__device__ Shared& shared() {
  return *tutorial::dynamic_shared<Shared, tutorial::kTileAlignment>();
}

/// Runs blocks of 64 threads.
cudaError_t run_clusters(dim3 cluster, dim3 grid, std::function<void()> kernel,
                         std::source_location where = std::source_location::current()) {
  const cudaError_t error = launch(grid, 64, sizeof(Shared), nullptr, where, std::move(kernel), nullptr, cluster);
  (void)cudaGetLastError();
  return error;
}

/// What the report says about a kernel that goes wrong in a cluster of two.
std::string report_of(std::function<void()> kernel) {
  EXPECT_EQ(run_clusters(2, 2, std::move(kernel)), cudaErrorLaunchFailure);
  return last_report();
}

/// Each block initialises its barriers; afterwards all blocks may use them.
void begin(unsigned count = 1) {
  if (threadIdx.x == 0) {
    shared().full.init(count);
    shared().empty.init(count);
    tutorial::fence_barrier_init();
  }
  cluster_sync();
}

/// Lets all others get as far as they can.
void let_others_run() {
  for (int i = 0; i < 200; ++i) __nanosleep(1);
}

/// A tile whose elements are all 7.
class Tensor {
 public:
  TensorMap map() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    auto* data = reinterpret_cast<__nv_bfloat16*>(memory_.data() + (16 - address % 16) % 16 / 2);
    return tutorial::tile_map(tutorial::packed(data, 1, kRows, 64), {.B = 1, .H = 1, .L = kRows, .D = 64}, kRows);
  }

 private:
  std::vector<std::uint16_t> memory_ = std::vector<std::uint16_t>(kTile + 8, 7);
};

class LateCluster : public testing::Test {
  const Environment late_{"EMULATOR_ASYNC", "late"};
};

// --- launches ---

__global__ void nothing() {}

TEST(Cluster, ALaunchRefusesClustersThatDoNotDivideTheGrid) {
  EXPECT_EQ(run_clusters(2, 3, nothing), cudaErrorInvalidClusterSize);
  EXPECT_EQ(run_clusters(dim3(1, 1, 2), dim3(2, 2, 1), nothing), cudaErrorInvalidClusterSize);
  EXPECT_EQ(run_clusters(dim3(1, 0), 2, nothing), cudaErrorInvalidClusterSize);
  EXPECT_EQ(run_clusters(16, 16, nothing), cudaErrorInvalidClusterSize);
  EXPECT_EQ(run_clusters(dim3(3, 3), dim3(3, 3), nothing), cudaErrorInvalidClusterSize);
  EXPECT_EQ(run_clusters(dim3(2, 2, 2), dim3(2, 4, 6), nothing), cudaSuccess);
}

__global__ void count() {
  cluster_sync();
}

TEST(Cluster, EachBlockCounts) {
  reset_counters();
  EXPECT_EQ(run_clusters(dim3(2, 3), dim3(4, 6), count), cudaSuccess);
  EXPECT_EQ(counters().blocks, 24u);
  EXPECT_EQ(counters().threads, 24u * 64);
}

// --- shared memory ---

__global__ void look_at_shared(int* out) {
  const unsigned i = threadIdx.x;
  const bool is_nan = std::isnan(shared().values[i]);
  __syncthreads();
  shared().values[i] = static_cast<float>(blockIdx.x);
  __syncthreads();
  out[global_thread()] = is_nan && shared().values[63 - i] == static_cast<float>(blockIdx.x);
}

TEST(Cluster, SharedMemoryIsEachBlocksOwnAndNanAtTheStart) {
  const Environment environment("EMULATOR_THREADS", "2");
  std::vector<int> out(16 * 64, 0);
  EXPECT_EQ(run_clusters(4, 16, [&] { look_at_shared(out.data()); }), cudaSuccess);
  EXPECT_THAT(out, Each(1));
}

__global__ void write_static(int* out, bool write) {
  __shared__ int number;
  if (write && threadIdx.x == 3) number = 5;
  __syncthreads();
  out[global_thread()] = number;
}

TEST(Cluster, AStaticArrayIsRefused) {
#ifdef EMULATOR_ASAN
  GTEST_SKIP() << "with AddressSanitizer static shared memory cannot be told from other variables";
#endif
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer would report it";
#endif
  std::vector<int> out(128);
  EXPECT_THAT(report_of([&] { write_static(out.data(), true); }),
              AllOf(HasSubstr("has written to a static __shared__ array"), HasSubstr("take dynamic_shared() instead")));
  EXPECT_EQ(run_clusters(2, 2, [&] { write_static(out.data(), false); }), cudaSuccess);
  EXPECT_EQ(run_clusters(1, 2, [&] { write_static(out.data(), true); }), cudaSuccess);
}

__global__ void init_static() {
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) barrier.init(1);
}
__global__ void peer_of_static() {
  __shared__ int number;
  cluster_sync();
  peer_shared(&number, 1 - cluster_rank());
}
[[maybe_unused]] constexpr unsigned kInitStatic = __LINE__ - 7;  // for AddressSanitizer's build
constexpr unsigned kPeerOfStatic = __LINE__ - 3;

TEST(Cluster, ABarrierOrAPeersAddressIsInDynamicSharedMemory) {
#ifdef EMULATOR_ASAN
  EXPECT_THAT(report_of(init_static), HasSubstr(at_line(kInitStatic)));
#else
  EXPECT_THAT(report_of(init_static), HasSubstr("static __shared__ array"));
#endif
  EXPECT_THAT(report_of(peer_of_static),
              AllOf(HasSubstr("is not one in this block's dynamic shared memory"), HasSubstr(at_line(kPeerOfStatic))));
}

__global__ void rank_too_high() {
  cluster_sync();
  peer_shared(shared().values, 2);
}
constexpr unsigned kRank = __LINE__ - 2;

TEST(Cluster, APeerHasARankInTheCluster) {
  EXPECT_THAT(report_of(rank_too_high),
              AllOf(HasSubstr("the cluster has no block of rank 2: it has 2"), HasSubstr(at_line(kRank))));
}

// --- the barrier ---

__global__ void some_never_arrive() {
  if (cluster_rank() == 0 || threadIdx.x < 40) cluster_sync();
}
constexpr unsigned kNeverArrive = __LINE__ - 2;

TEST(ClusterBarrier, AStuckOneIsReportedForEachBlock) {
  EXPECT_THAT(report_of(some_never_arrive),
              AllOf(HasSubstr("block (0,0,0) is stuck"), HasSubstr("threads 0-63 wait at the cluster's barrier "),
                    HasSubstr("block (1,0,0) is stuck"), HasSubstr("threads 0-39 wait at the cluster's barrier "),
                    HasSubstr(at_line(kNeverArrive)), HasSubstr("; 24 arrivals missing\n"),
                    HasSubstr("threads 40-63 have returned from the kernel")));
}

__global__ void one_block_returns() {
  if (cluster_rank() == 0) cluster_sync();
}

TEST(ClusterBarrier, MissesABlockThatHasReturned) {
  EXPECT_THAT(report_of(one_block_returns),
              AllOf(HasSubstr("block (0,0,0) is stuck"), HasSubstr("; 64 arrivals missing\n"),
                    HasSubstr("block (1,0,0) has ended\n")));
}

__global__ void arrive_twice() {
  cluster_arrive();
  if (threadIdx.x == 7) cluster_arrive();
}
__global__ void wait_without_arrival() {
  if (threadIdx.x == 7) cluster_wait();
}
constexpr unsigned kArriveTwice = __LINE__ - 5, kWaitAlone = __LINE__ - 2;

TEST(ClusterBarrier, ArrivalsAndWaitsTakeTurns) {
  EXPECT_THAT(report_of(arrive_twice), AllOf(HasSubstr("has not waited since its last arrival at "),
                                             HasSubstr(at_line(kArriveTwice)), HasSubstr("thread (7,0,0)")));
  EXPECT_THAT(report_of(wait_without_arrival),
              AllOf(HasSubstr("waits at the cluster's barrier, but has not arrived there at "),
                    HasSubstr(at_line(kWaitAlone)), HasSubstr("thread (7,0,0)")));
}

// --- barriers of other blocks ---

__global__ void arrive_at_the_wrong_block() {
  begin(64);
  if (cluster_rank() == 0) {
    shared().empty.arrive_at(0);  // not the one that waits
  } else {
    shared().empty.wait_cluster(0);
  }
}
constexpr unsigned kWaitInVain = __LINE__ - 3;

TEST(Cluster, AnArrivalAtTheWrongBlockLeavesTheOtherOneStuck) {
  EXPECT_THAT(report_of(arrive_at_the_wrong_block),
              AllOf(HasSubstr("block (0,0,0) has ended\n"), HasSubstr("block (1,0,0) is stuck"),
                    HasSubstr("threads 0-63 wait at "), HasSubstr(at_line(kWaitInVain)),
                    HasSubstr(" for parity 0; 64 arrivals, 0 bytes missing\n")));
}

enum class Reach { address, arrival, push, multicast };

/// Reaches into another block.
void reach(Reach how, const TensorMap& map, unsigned rank) {
  if (how == Reach::address) peer_shared(shared().values, rank)[0] = 1;
  if (how == Reach::arrival) shared().full.arrive_at(rank);
  if (how == Reach::push) push_shared(shared().tile, shared().outgoing, 16, shared().full, rank);
  if (how == Reach::multicast) load_tile_multicast(map, shared().tile, shared().full, {}, 1u << rank);
}
constexpr unsigned kReach = __LINE__ - 5;

constexpr Reach kAllWays[] = {Reach::address, Reach::arrival, Reach::push, Reach::multicast};

__global__ void reach_before_the_barrier(Reach how, const TensorMap map) {
  if (threadIdx.x == 0) {
    shared().full.init(1);
    tutorial::fence_barrier_init();
    reach(how, map, 1 - cluster_rank());
  }
  cluster_sync();
}

TEST(Cluster, ABlockIsReachedAfterTheFirstBarrier) {
  Tensor in;
  for (const char* schedule : {"forward", "reverse", "warps", "random:1"}) {
    set_schedule(schedule);
    for (const Reach how : kAllWays) {
      EXPECT_THAT(report_of([&, map = in.map()] { reach_before_the_barrier(how, map); }),
                  AllOf(HasSubstr("before the cluster's first barrier: that one may not have started at "),
                        HasSubstr(at_line(kReach + static_cast<unsigned>(how)))));
    }
  }
  set_schedule("");
}

// The barrier of the cluster is there, but too early.
__global__ void reach_before_init(Reach how, const TensorMap map) {
  cluster_sync();
  if (cluster_rank() == 0) {
    if (threadIdx.x == 0) reach(how, map, 1);
  } else {
    let_others_run();
    if (threadIdx.x == 0) shared().full.init(1);
  }
}

TEST(Cluster, ABarrierOfAnotherBlockIsInitialisedBeforeItIsUsed) {
  Tensor in;
  for (const Reach how : {Reach::arrival, Reach::push, Reach::multicast}) {
    EXPECT_THAT(report_of([&, map = in.map()] { reach_before_init(how, map); }),
                AllOf(HasSubstr("a barrier in shared memory is used before init() at "),
                      HasSubstr(at_line(kReach + static_cast<unsigned>(how))), HasSubstr("block (0,0,0)")));
  }
}

// Block 1 ends, and block 0 goes on.
__global__ void reach_too_late(Reach how, const TensorMap map) {
  begin();
  if (cluster_rank() == 1) return;
  let_others_run();
  if (threadIdx.x == 0) reach(how, map, 1);
}

TEST(Cluster, ABlockThatHasEndedIsNotReached) {
  Tensor in;
  for (const Reach how : kAllWays) {
    EXPECT_THAT(report_of([&, map = in.map()] { reach_too_late(how, map); }),
                AllOf(HasSubstr("a block reaches into another one that has ended"),
                      HasSubstr(at_line(kReach + static_cast<unsigned>(how))), HasSubstr("block (0,0,0)")));
  }
}

__global__ void wait_at_another_block() {
  begin();
  if (threadIdx.x == 0) peer_shared(&shared().full, 1 - cluster_rank())->wait(0);
}
constexpr unsigned kWaitElsewhere = __LINE__ - 2;

TEST(Cluster, ABlockWaitsAtItsOwnBarriers) {
  EXPECT_THAT(report_of(wait_at_another_block),
              AllOf(HasSubstr("a thread waits at a barrier of another block"), HasSubstr(at_line(kWaitElsewhere))));
}

__global__ void wait_for_another_block(bool of_cluster, bool push) {
  begin();
  if (cluster_rank() == 0) {
    if (threadIdx.x == 0 && !push) shared().full.arrive_at(1);
    if (threadIdx.x == 0 && push) push_shared(shared().tile, shared().outgoing, 16, shared().full, 1);
  } else {
    if (threadIdx.x == 0 && push) shared().full.arrive_expect(16);
    if (of_cluster) {
      shared().full.wait_cluster(0);
    } else {
      shared().full.wait(0);
    }
  }
  cluster_sync();
}
constexpr unsigned kWaitOfBlock = __LINE__ - 5;

TEST(Cluster, WhatAnotherBlockHasDoneTakesAWaitOfTheCluster) {
  for (const bool push : {false, true}) {
    EXPECT_EQ(run_clusters(2, 2, [=] { wait_for_another_block(true, push); }), cudaSuccess);
    EXPECT_THAT(report_of([=] { wait_for_another_block(false, push); }),
                AllOf(HasSubstr("wait_cluster() makes that visible, wait() does not"), HasSubstr(at_line(kWaitOfBlock)),
                      HasSubstr("block (1,0,0)")));
  }
}

// --- multicast ---

/// Block 0 loads a tile for both blocks, which expect `bytes` bytes.
__global__ void share(const TensorMap map, unsigned bytes, std::uint16_t* out) {
  begin();
  if (threadIdx.x == 0) shared().full.arrive_expect(cluster_rank() == 1 ? bytes : kTileBytes);
  if (cluster_rank() == 0 && threadIdx.x == 0) load_tile_multicast(map, shared().tile, shared().full, {}, 3);
  shared().full.wait(0);
  if (threadIdx.x < 2) out[2 * cluster_rank() + threadIdx.x] = shared().tile[300 * threadIdx.x];
  cluster_sync();
}
constexpr unsigned kMulticast = __LINE__ - 5, kMulticastWait = __LINE__ - 4;

TEST(Cluster, AMulticastCountsItsBytesOnce) {
  Tensor in;
  for (const char* when : {"late", "early", "random:1"}) {
    const Environment async("EMULATOR_ASYNC", when);
    std::vector<std::uint16_t> out(4);
    reset_counters();
    EXPECT_EQ(run_clusters(2, 2, [&, map = in.map()] { share(map, kTileBytes, out.data()); }), cudaSuccess);
    EXPECT_THAT(out, Each(7));
    EXPECT_EQ(counters().global_bytes_read, kTileBytes);
  }
}

TEST_F(LateCluster, AMulticastBringsAllBytesToEachBlock) {
  Tensor in;
  std::vector<std::uint16_t> out(4);
  EXPECT_THAT(report_of([&, map = in.map()] { share(map, kTileBytes / 2, out.data()); }),
              AllOf(HasSubstr("expects fewer bytes than its copies bring"), HasSubstr(at_line(kMulticast))));
  set_schedule("forward");  // the copy is issued before block 1 arrives
  EXPECT_THAT(report_of([&, map = in.map()] { share(map, 0, out.data()); }),
              AllOf(HasSubstr("this phase of the barrier has ended before this copy came: it expects too few bytes"),
                    HasSubstr(at_line(kMulticast))));
  set_schedule("");
  EXPECT_THAT(report_of([&, map = in.map()] { share(map, 2 * kTileBytes, out.data()); }),
              AllOf(HasSubstr("block (1,0,0) is stuck"), HasSubstr(at_line(kMulticastWait)),
                    HasSubstr(" for parity 0; 0 arrivals, 1024 bytes missing\n")));
}

__global__ void share_without_wait(const TensorMap map) {
  begin();
  if (threadIdx.x == 0) shared().full.arrive_expect(kTileBytes);
  if (cluster_rank() == 0 && threadIdx.x == 0) load_tile_multicast(map, shared().tile, shared().full, {}, 3);
  if (cluster_rank() == 0) shared().full.wait(0);
  cluster_sync();
}
constexpr unsigned kNotWaitedFor = __LINE__ - 4;

TEST_F(LateCluster, AMulticastThatABlockLeavesBehindIsReported) {
  Tensor in;
  EXPECT_THAT(report_of([map = in.map()] { share_without_wait(map); }),
              AllOf(HasSubstr("nobody has waited for a bulk load into its shared memory at "),
                    HasSubstr(at_line(kNotWaitedFor))));
}

__global__ void share_too_early(const TensorMap map, std::uint16_t* out) {
  shared().tile[threadIdx.x] = 1;
  begin();
  if (threadIdx.x == 0) shared().full.arrive_expect(kTileBytes);
  if (cluster_rank() == 0) {
    if (threadIdx.x == 0) load_tile_multicast(map, shared().tile, shared().full, {}, 3);
  } else {
    let_others_run();
    if (threadIdx.x == 0) *out = shared().tile[0];  // block 0 should have waited for this
    __syncthreads();
  }
  shared().full.wait(0);
  cluster_sync();
}

TEST_F(LateCluster, ATileThatAnotherBlockRefillsTooEarlyIsNaN) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer would report it";
#endif
  Tensor in;
  std::uint16_t out = 0;
  EXPECT_EQ(run_clusters(2, 2, [&, map = in.map()] { share_too_early(map, &out); }), cudaSuccess);
  EXPECT_EQ(out, kNaN);
}

// --- pushes ---

enum class PushFault { none, plain_stores, no_fence, overwrite, end };

/// Block 0 pushes a tile of 2.
__global__ void push_tile(PushFault fault, std::uint16_t* out) {
  begin();
  if (cluster_rank() == 0) {
    for (unsigned i = threadIdx.x; i < kTile; i += 64) {
      if (fault == PushFault::plain_stores) {
        shared().outgoing[i] = 2;
      } else {
        tutorial::store_for_copies(&shared().outgoing[i], 2);
      }
    }
    if (fault != PushFault::no_fence) tutorial::fence_async_proxy();
    __syncthreads();
    if (threadIdx.x == 0) push_shared(shared().tile, shared().outgoing, kTileBytes, shared().full, 1);
    if (fault == PushFault::end) return;
    if (fault == PushFault::overwrite && threadIdx.x == 0) {
      tutorial::store_for_copies(&shared().outgoing[0], 3);
      tutorial::fence_async_proxy();
    }
  } else {
    if (fault == PushFault::end) let_others_run();
    if (threadIdx.x == 0) shared().full.arrive_expect(kTileBytes);
    shared().full.wait_cluster(0);
    for (unsigned i = threadIdx.x; i < kTile; i += 64) out[i] = shared().tile[i];
  }
  cluster_sync();
}
constexpr unsigned kPush = __LINE__ - 14, kPushFence = __LINE__ - 16;

TEST(Cluster, APushBringsWhatWasFenced) {
  for (const char* when : {"late", "early", "random:1"}) {
    const Environment async("EMULATOR_ASYNC", when);
    std::vector<std::uint16_t> out(kTile);
    EXPECT_EQ(run_clusters(2, 2, [&] { push_tile(PushFault::none, out.data()); }), cudaSuccess);
    EXPECT_THAT(out, Each(2));
  }
}

TEST(Cluster, APushOfWhatNoFenceFollowsIsReported) {
  std::vector<std::uint16_t> out(kTile);
  for (const char* when : {"late", "early", "random:1"}) {
    const Environment async("EMULATOR_ASYNC", when);
    for (const PushFault fault : {PushFault::plain_stores, PushFault::no_fence}) {
      EXPECT_THAT(report_of([&] { push_tile(fault, out.data()); }),
                  AllOf(HasSubstr("a push would miss what threads have stored: "), HasSubstr(at_line(kPush)),
                        HasSubstr("block (0,0,0), thread (0,0,0)")));
    }
  }
  skip_barrier("runtime_cluster_test.cu", kPushFence);
  EXPECT_THAT(report_of([&] { push_tile(PushFault::none, out.data()); }), HasSubstr("a push would miss"));
  skip_no_barrier();
}

TEST_F(LateCluster, ASourceThatIsOverwrittenTooEarlyIsPushedWrong) {
  std::vector<std::uint16_t> out(kTile);
  EXPECT_EQ(run_clusters(2, 2, [&] { push_tile(PushFault::overwrite, out.data()); }), cudaSuccess);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[1], 2);
}

TEST_F(LateCluster, ABlockThatEndsBeforeItsPushHasReadIsReported) {
  std::vector<std::uint16_t> out(kTile);
  EXPECT_THAT(report_of([&] { push_tile(PushFault::end, out.data()); }),
              AllOf(HasSubstr("the block has ended, but nothing has told it that this copy has read its shared memory"),
                    HasSubstr(at_line(kPush)), HasSubstr("block (0,0,0), thread (0,0,0)")));
}

__global__ void push_misaligned(unsigned offset, unsigned bytes) {
  begin();
  if (threadIdx.x == 0) push_shared(shared().tile, shared().outgoing + offset, bytes, shared().full, 1);
}
constexpr unsigned kPushMisaligned = __LINE__ - 2;

TEST(Cluster, APushIsOfUnitsOf16Bytes) {
  EXPECT_THAT(report_of([] { push_misaligned(4, 16); }),
              AllOf(HasSubstr("is not a multiple of 16"), HasSubstr(at_line(kPushMisaligned))));
  EXPECT_THAT(report_of([] { push_misaligned(0, 24); }),
              AllOf(HasSubstr("a push copies a multiple of 16 bytes"), HasSubstr(at_line(kPushMisaligned))));
}

__global__ void push_to_itself() {
  begin();
  if (threadIdx.x == 0) push_shared(shared().tile, shared().outgoing, 16, shared().full, cluster_rank());
}
constexpr unsigned kPushToItself = __LINE__ - 2;

TEST(Cluster, APushGoesToAnotherBlock) {
  EXPECT_THAT(report_of(push_to_itself),
              AllOf(HasSubstr("a push goes to another block of the cluster"), HasSubstr(at_line(kPushToItself))));
}

// --- schedules ---

struct Log {
  std::atomic<unsigned> size = 0;
  unsigned entries[512];

  void add(unsigned entry) { entries[size++] = entry; }
};

__global__ void log_threads(Log* log) {
  log->add(global_thread());
  cluster_sync();
  log->add(global_thread());
}

TEST(Cluster, ASchedulesOrderIsThatOfAllItsThreads) {
  for (const bool reverse : {false, true}) {
    set_schedule(reverse ? "reverse" : "forward");
    Log log;
    EXPECT_EQ(run_clusters(2, 2, [&] { log_threads(&log); }), cudaSuccess);
    ASSERT_EQ(log.size, 256u);
    for (unsigned i = 0; i < 128; ++i) EXPECT_EQ(log.entries[i], reverse ? 127 - i : i);
    // The last that arrives goes on at once, before those that it wakes.
    EXPECT_EQ(log.entries[128], log.entries[127]);
    for (unsigned i = 0; i < 127; ++i) EXPECT_EQ(log.entries[129 + i], log.entries[i]);
  }
  set_schedule("random:1");
  Log log;
  EXPECT_EQ(run_clusters(2, 2, [&] { log_threads(&log); }), cudaSuccess);
  unsigned changes = 0;  // from one block to the other
  for (unsigned i = 1; i < 128; ++i) changes += log.entries[i] / 64 != log.entries[i - 1] / 64;
  EXPECT_GT(changes, 20u);
  set_schedule("");
}

// --- what is skipped ---

__global__ void swap(float* out) {
  const unsigned other = 1 - cluster_rank(), i = threadIdx.x;
  cluster_sync();
  peer_shared(shared().values, other)[i] = 1.0f;
  cluster_sync();
  out[global_thread()] = shared().values[63 - i];
  cluster_arrive();
  cluster_wait();
}
constexpr unsigned kFirstSync = __LINE__ - 7, kSecondSync = __LINE__ - 5, kLastArrive = __LINE__ - 3;

class SkippedCluster : public testing::Test {
 protected:
  void TearDown() override {
    skip_no_barrier();
    set_schedule("");
  }

  static bool is_right(unsigned skipped) {
    skip_barrier("runtime_cluster_test.cu", skipped);
    for (const char* schedule : {"forward", "reverse"}) {
      set_schedule(schedule);
      std::vector<float> out(128);
      if (run_clusters(2, 2, [&] { swap(out.data()); }) != cudaSuccess) return false;
      if (out != std::vector<float>(128, 1.0f)) return false;
    }
    return true;
  }
};

TEST_F(SkippedCluster, AnArrivalOrAWaitThatIsLeftOutShows) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer would report it";
#endif
  EXPECT_TRUE(is_right(kFirstSync + 1));
  EXPECT_FALSE(is_right(kFirstSync));
  EXPECT_THAT(last_report(), HasSubstr("before the cluster's first barrier"));
  EXPECT_FALSE(is_right(kSecondSync));
  EXPECT_FALSE(is_right(kLastArrive));
  EXPECT_THAT(last_report(), HasSubstr("has not arrived there"));
}

__global__ void relay() {
  begin();
  if (threadIdx.x != 0) return cluster_sync();
  if (cluster_rank() == 0) shared().full.arrive_at(1);
  if (cluster_rank() == 1) shared().full.wait_cluster(0);
  cluster_sync();
}
constexpr unsigned kArriveAt = __LINE__ - 4;

TEST_F(SkippedCluster, AnArrivalAtAnotherBlockThatIsLeftOutShows) {
  EXPECT_EQ(run_clusters(2, 2, relay), cudaSuccess);
  skip_barrier("runtime_cluster_test.cu", kArriveAt);
  EXPECT_THAT(report_of(relay), AllOf(HasSubstr(at_line(kArriveAt + 1)), HasSubstr("1 arrival, 0 bytes missing")));
}

}  // namespace
}  // namespace emulator::test
