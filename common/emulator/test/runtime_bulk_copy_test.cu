// Bulk copies: when they happen, and what the emulator says about kernels that do not wait for them in the right way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/barrier.hpp>
#include <emulator/counters.hpp>
#include <emulator/schedule.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/device/bulk_copy.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/stmatrix.cuh"
#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using tutorial::Barrier;
using tutorial::commit_stores;
using tutorial::load_tile;
using tutorial::store_tile;
using tutorial::TensorMap;
using tutorial::tile_bytes;
using tutorial::wait_stores;
using tutorial::wait_stores_read;

constexpr int kRows = 8;
constexpr unsigned kTile = kRows * 64;  // elements
constexpr std::uint16_t kNaN = 0xFFFF;

/// The lines of this file, as reports name them.
std::string at_line(unsigned line) {
  return "runtime_bulk_copy_test.cu:" + std::to_string(line) + " in ";
}

/// Two tiles, one below the other, whose elements are all `value`.
class Tensor {
 public:
  explicit Tensor(std::uint16_t value) : memory_(2 * kTile + 8, value) {}

  /// The elements from the first multiple of 16 bytes on.
  std::uint16_t* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
    return memory_.data() + (16 - address % 16) % 16 / 2;
  }
  TensorMap map() {
    return tutorial::tile_map(tutorial::packed(reinterpret_cast<__nv_bfloat16*>(data()), 1, 2 * kRows, 64),
                              {.B = 1, .H = 1, .L = 2 * kRows, .D = 64}, kRows);
  }
  std::vector<std::uint16_t> tile(unsigned i) { return {data() + i * kTile, data() + (i + 1) * kTile}; }

 private:
  std::vector<std::uint16_t> memory_;
};

/// Runs 64 threads, with shared memory for two tiles.
cudaError_t run_kernel(std::function<void()> kernel) {
  const cudaError_t error = run(1, 64, 2 * tile_bytes(kRows), std::move(kernel));
  (void)cudaGetLastError();
  return error;
}

/// What the report says about a kernel that goes wrong.
std::string report_of(std::function<void()> kernel) {
  EXPECT_EQ(run_kernel(std::move(kernel)), cudaErrorLaunchFailure);
  return last_report();
}

std::uint16_t* shared_tile(unsigned i = 0) {
  return tutorial::dynamic_shared<std::uint16_t, tutorial::kTileAlignment>() + i * kTile;
}

/// Writes all elements of the tile so that bulk copies see them.
void fill_tile(std::uint16_t value) {
  for (unsigned i = 0; i < kTile; ++i) tutorial::store_for_copies(&shared_tile()[i], value);
  tutorial::fence_async_proxy();
}

/// Thread 0 initialises the barrier; afterwards all may use it.
void begin(Barrier& barrier, unsigned count = 1) {
  if (threadIdx.x == 0) {
    barrier.init(count);
    tutorial::fence_barrier_init();
  }
  __syncthreads();
}

class LateBulkCopy : public testing::Test {
  const Environment late_{"EMULATOR_ASYNC", "late"};
};

// --- when copies happen ---

struct Seen {
  std::uint16_t after_issue, after_wait;
};

__global__ void watch_load(const TensorMap map, Seen* seen) {
  __shared__ Barrier full;
  begin(full);
  if (threadIdx.x != 0) return;
  shared_tile()[5] = 1;
  full.arrive_expect(tile_bytes(kRows));
  load_tile(map, shared_tile(), full, {});
  seen->after_issue = shared_tile()[5];
  full.wait(0);
  seen->after_wait = shared_tile()[5];
}

__global__ void watch_store(const TensorMap map, const std::uint16_t* out, Seen* seen) {
  if (threadIdx.x != 0) return;
  fill_tile(2);
  store_tile(map, shared_tile(), {});
  commit_stores();
  seen->after_issue = out[5];
  wait_stores<0>();
  seen->after_wait = out[5];
}

Seen seen_load() {
  Tensor in(7);
  Seen seen{};
  EXPECT_EQ(run_kernel([&] { watch_load(in.map(), &seen); }), cudaSuccess);
  return seen;
}

Seen seen_store() {
  Tensor out(7);
  Seen seen{};
  EXPECT_EQ(run_kernel([&] { watch_store(out.map(), out.data(), &seen); }), cudaSuccess);
  return seen;
}

TEST(BulkCopy, ArrivesAsLateAsItMay) {
  const Environment late("EMULATOR_ASYNC", "late");
  EXPECT_EQ(seen_load().after_issue, kNaN);
  EXPECT_EQ(seen_load().after_wait, 7);
  EXPECT_EQ(seen_store().after_issue, kNaN);
  EXPECT_EQ(seen_store().after_wait, 2);
}

TEST(BulkCopy, ArrivesAtOnceIfAskedTo) {
  const Environment early("EMULATOR_ASYNC", "early");
  EXPECT_EQ(seen_load().after_issue, 7);
  EXPECT_EQ(seen_load().after_wait, 7);
  EXPECT_EQ(seen_store().after_issue, 2);
  EXPECT_EQ(seen_store().after_wait, 2);
}

TEST(BulkCopy, ArrivesNowOrLater) {
  bool is_early[2] = {}, is_late[2] = {};
  for (int seed = 0; seed < 20; ++seed) {
    const Environment random("EMULATOR_ASYNC", "random:" + std::to_string(seed));
    const Seen seen[2] = {seen_load(), seen_store()};
    for (int i = 0; i < 2; ++i) {
      (seen[i].after_issue == kNaN ? is_late[i] : is_early[i]) = true;
      EXPECT_EQ(seen[i].after_wait, i == 0 ? 7 : 2);
    }
  }
  EXPECT_THAT(is_early, Each(true));
  EXPECT_THAT(is_late, Each(true));
}

// Another thread looks again and again, so the block always has a thread that can go on.
__global__ void wait_beside_a_loop(const TensorMap map, std::uint16_t* out) {
  __shared__ Barrier full;
  __shared__ unsigned flag;
  if (threadIdx.x == 0) atomicExch(&flag, 0u);
  begin(full);
  if (threadIdx.x == 0) {
    full.arrive_expect(tile_bytes(kRows));
    load_tile(map, shared_tile(), full, {});
    full.wait(0);
    out[0] = shared_tile()[0];
    atomicExch(&flag, 1u);
  } else if (threadIdx.x < 3) {
    while (atomicAdd(&flag, 0u) == 0) __nanosleep(1);
  }
}

TEST(BulkCopy, ArrivesWhileOtherThreadsWaitInALoop) {
  Tensor in(7);
  std::uint16_t out = 0;
  EXPECT_EQ(run_kernel([&] { wait_beside_a_loop(in.map(), &out); }), cudaSuccess);
  EXPECT_EQ(out, 7);
}

__global__ void move_half(const TensorMap in, const TensorMap out) {
  __shared__ Barrier full;
  begin(full);
  if (threadIdx.x != 0) return;
  full.arrive_expect(tile_bytes(kRows));
  load_tile(in, shared_tile(), full, {.position = -4});
  full.wait(0);
  store_tile(out, shared_tile(), {.position = 2 * kRows - 2});
  commit_stores();
  wait_stores<0>();
}

TEST(BulkCopy, CountsBytesWithinTheTensor) {
  Tensor in(7), out(1);
  reset_counters();
  EXPECT_EQ(run_kernel([&] { move_half(in.map(), out.map()); }), cudaSuccess);
  EXPECT_EQ(counters().global_bytes_read, 4u * 128);
  EXPECT_EQ(counters().global_bytes_written, 2u * 128);
}

// --- loads that are not waited for ---

// Thread 0 loads a second tile over the first, which thread 32 has not read yet.
__global__ void refill(const TensorMap map, std::uint16_t* out) {
  __shared__ Barrier full;
  begin(full);
  if (threadIdx.x == 0) {
    for (unsigned n = 0; n < 2; ++n) {
      full.arrive_expect(tile_bytes(kRows));
      load_tile(map, shared_tile(), full, {});
      full.wait(n);
    }
  } else if (threadIdx.x == 32) {
    full.wait(0);
    *out = shared_tile()[0];
  }
}

TEST_F(LateBulkCopy, ATileThatIsRefilledTooEarlyIsNaN) {
#ifdef EMULATOR_TSAN
  GTEST_SKIP() << "ThreadSanitizer would report it";
#endif
  set_schedule("forward");
  Tensor in(7);
  std::uint16_t out = 0;
  EXPECT_EQ(run_kernel([&] { refill(in.map(), &out); }), cudaSuccess);
  EXPECT_EQ(out, kNaN);
  set_schedule("");
}

__global__ void load_with_bytes(const TensorMap map, unsigned bytes, bool wait) {
  __shared__ Barrier full;
  begin(full);
  if (threadIdx.x == 0) {
    full.arrive_expect(bytes);
    load_tile(map, shared_tile(0), full, {});
    load_tile(map, shared_tile(1), full, {.position = kRows});
  }
  if (wait) full.wait(0);
}
constexpr unsigned kFirstLoad = __LINE__ - 5, kSecondLoad = __LINE__ - 4, kLoadWait = __LINE__ - 2;

std::string report_of_bytes(unsigned bytes, bool wait = true) {
  Tensor in(7);
  return report_of([&] { load_with_bytes(in.map(), bytes, wait); });
}

TEST_F(LateBulkCopy, ABarrierThatExpectsTooFewBytesIsReported) {
  EXPECT_THAT(
      report_of_bytes(tile_bytes(kRows)),
      AllOf(HasSubstr("this phase of the barrier has ended before this copy came: it expects too few bytes at "),
            HasSubstr(at_line(kSecondLoad)), HasSubstr("thread (0,0,0)")));
  EXPECT_THAT(report_of_bytes(tile_bytes(kRows) / 2),
              AllOf(HasSubstr("expects fewer bytes than its copies bring"), HasSubstr(at_line(kFirstLoad))));
}

TEST_F(LateBulkCopy, ABarrierThatExpectsTooManyBytesIsReported) {
  EXPECT_THAT(report_of_bytes(3 * tile_bytes(kRows)),
              AllOf(HasSubstr("threads 0-63 wait at "), HasSubstr(at_line(kLoadWait)),
                    HasSubstr(" for parity 0; 0 arrivals, 1024 bytes missing")));
}

TEST_F(LateBulkCopy, ALoadThatTheBlockLeavesBehindIsReported) {
  EXPECT_THAT(
      report_of_bytes(2 * tile_bytes(kRows), false),
      AllOf(HasSubstr("nobody has waited for a bulk load into its shared memory at "), HasSubstr(at_line(kFirstLoad))));
}

TEST(EarlyBulkCopy, ABarrierThatExpectsTooFewBytesIsReported) {
  const Environment early("EMULATOR_ASYNC", "early");
  EXPECT_THAT(report_of_bytes(tile_bytes(kRows)),
              HasSubstr("the phases of this barrier expect fewer bytes than its copies have brought at "));
}

__global__ void load_without_barrier(const TensorMap map) {
  __shared__ Barrier full;
  if (threadIdx.x == 0) load_tile(map, shared_tile(), full, {});
}
constexpr unsigned kWithoutBarrier = __LINE__ - 2;

TEST(BulkCopy, NeedsAnInitialisedBarrier) {
  Tensor in(7);
  EXPECT_THAT(report_of([&] { load_without_barrier(in.map()); }),
              AllOf(HasSubstr("used before init()"), HasSubstr(at_line(kWithoutBarrier))));
}

__global__ void load_misaligned(const TensorMap map, bool store) {
  __shared__ Barrier full;
  begin(full);
  if (threadIdx.x != 0) return;
  if (store) store_tile(map, shared_tile() + 256, {});
  load_tile(map, shared_tile() + 256, full, {});
}
constexpr unsigned kMisaligned = __LINE__ - 2;

TEST(BulkCopy, NeedsAlignedTiles) {
  Tensor in(7);
  EXPECT_THAT(report_of([&] { load_misaligned(in.map(), false); }),
              AllOf(HasSubstr("is not a multiple of 1024"), HasSubstr(at_line(kMisaligned))));
  EXPECT_THAT(report_of([&] { load_misaligned(in.map(), true); }), HasSubstr(at_line(kMisaligned - 1)));
}

// --- stores that begin before the tensor ---

__global__ void store_at(const TensorMap map, tutorial::TileOrigin origin) {
  if (threadIdx.x != 0) return;
  fill_tile(2);
  store_tile(map, shared_tile(), origin);
  commit_stores();
  wait_stores<0>();
}
constexpr unsigned kStoreAt = __LINE__ - 4;

TEST(BulkCopy, AStoreThatBeginsBeforeTheTensorIsReported) {
  for (const char* when : {"late", "early"}) {
    const Environment async("EMULATOR_ASYNC", when);
    for (const tutorial::TileOrigin origin :
         {tutorial::TileOrigin{.column = -8}, tutorial::TileOrigin{.position = -1}}) {
      Tensor out(7);
      EXPECT_THAT(
          report_of([&] { store_at(out.map(), origin); }),
          AllOf(HasSubstr("a bulk store, unlike a load, may not begin before the tensor's first column or position"),
                HasSubstr(at_line(kStoreAt)), HasSubstr("thread (0,0,0)")));
      EXPECT_THAT(out.tile(0), Each(7));
    }
  }
}

TEST(BulkCopy, AStoreMayEndBeyondTheTensor) {
  Tensor out(7);
  EXPECT_EQ(run_kernel([&] { store_at(out.map(), {.column = 8, .position = 2 * kRows - 1}); }), cudaSuccess);
  EXPECT_EQ(out.tile(1)[(kRows - 1) * 64 + 7], 7);
  EXPECT_EQ(out.tile(1)[(kRows - 1) * 64 + 8], 2);
}

// --- stores that are not waited for ---

enum class StoreFault { none, no_wait, no_commit, too_few };

/// Stores two tiles from the same shared memory, first of 2, then of 3.
__global__ void store_twice(const TensorMap map, StoreFault fault) {
  if (threadIdx.x != 0) return;
  for (unsigned n = 0; n < 2; ++n) {
    fill_tile(static_cast<std::uint16_t>(2 + n));
    store_tile(map, shared_tile(), {.position = static_cast<int>(n) * kRows});
    if (fault != StoreFault::no_commit) commit_stores();
    if (fault == StoreFault::too_few && n == 0) {
      wait_stores_read<1>();
    } else if (fault != StoreFault::no_wait) {
      wait_stores_read<0>();
    }
  }
}
constexpr unsigned kStore = __LINE__ - 9;

TEST(BulkCopy, AStoreIsWrittenOnceSharedMemoryWasRead) {
  Tensor out(7);
  EXPECT_EQ(run_kernel([&] { store_twice(out.map(), StoreFault::none); }), cudaSuccess);
  EXPECT_THAT(out.tile(0), Each(2));
  EXPECT_THAT(out.tile(1), Each(3));
}

TEST_F(LateBulkCopy, ATileThatIsOverwrittenTooEarlyIsStoredWrong) {
  Tensor out(7);
  EXPECT_EQ(run_kernel([&] { store_twice(out.map(), StoreFault::too_few); }), cudaSuccess);
  EXPECT_THAT(out.tile(0), Each(3));
  EXPECT_THAT(out.tile(1), Each(3));
}

TEST(BulkCopy, AStoreThatNobodyWaitsForIsReported) {
  for (const char* when : {"late", "early", "random:1"}) {
    const Environment async("EMULATOR_ASYNC", when);
    for (const StoreFault fault : {StoreFault::no_wait, StoreFault::no_commit}) {
      Tensor out(7);
      EXPECT_THAT(report_of([&] { store_twice(out.map(), fault); }),
                  AllOf(HasSubstr("has not waited until its bulk store has read shared memory at "),
                        HasSubstr(at_line(kStore)), HasSubstr("thread (0,0,0)")));
    }
  }
}

// --- what bulk copies see ---

enum class Write { plain, not_fenced, fenced_by_another, fenced, stmatrix };

/// All threads write a tile of 2, and thread 0 stores it.
__global__ void write_and_store(const TensorMap map, Write write) {
  for (unsigned i = threadIdx.x; i < kTile; i += blockDim.x) {
    if (write == Write::plain) {
      shared_tile()[i] = 2;
    } else if (write != Write::stmatrix) {
      tutorial::store_for_copies(&shared_tile()[i], 2);
    }
  }
  if (write == Write::stmatrix) {  // 4 matrices of each warp side by side
    const std::uint32_t fragment[4] = {0x20002, 0x20002, 0x20002, 0x20002};
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    tutorial::stmatrix(shared_tile() + lane % 8 * 64 + (4 * warp + lane / 8) * 8, fragment);
  }
  if (write != Write::not_fenced && write != Write::fenced_by_another) tutorial::fence_async_proxy();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (write == Write::fenced_by_another) tutorial::fence_async_proxy();
  store_tile(map, shared_tile(), {});
  commit_stores();
  wait_stores<0>();
}
constexpr unsigned kFence = __LINE__ - 8;

std::vector<std::uint16_t> stored(Write write) {
  Tensor out(7);
  EXPECT_EQ(run_kernel([&] { write_and_store(out.map(), write); }), cudaSuccess);
  return out.tile(0);
}

TEST(AsyncProxy, SeesWhatWasWrittenBeforeAFence) {
  EXPECT_THAT(stored(Write::fenced), Each(2));
  EXPECT_THAT(stored(Write::stmatrix), Each(2));
}

TEST(AsyncProxy, DoesNotSeeWhatNoFenceFollows) {
  EXPECT_THAT(stored(Write::plain), Each(kNaN));
  EXPECT_THAT(stored(Write::not_fenced), Each(kNaN));
  const std::vector<std::uint16_t> tile = stored(Write::fenced_by_another);
  EXPECT_EQ(tile[0], 2);  // thread 0 fences its own writes
  EXPECT_EQ(tile[1], kNaN);
}

TEST(AsyncProxy, AFenceThatIsLeftOutShows) {
  skip_barrier("runtime_bulk_copy_test.cu", kFence);
  EXPECT_THAT(stored(Write::fenced), Each(kNaN));
  skip_no_barrier();
}

// --- what copies overwrite ---

enum class ReadFence { none, of_reader, of_other_reader, of_writer };

/// Warp 0 reads a tile by ldmatrix, and thread 32 loads it again.
__global__ void read_and_refill(const TensorMap map, ReadFence fence) {
  __shared__ Barrier full;
  begin(full);
  for (unsigned n = 0; n < 2; ++n) {
    if (threadIdx.x == 32) {
      if (fence == ReadFence::of_writer) tutorial::fence_async_proxy();
      full.arrive_expect(tile_bytes(kRows));
      load_tile(map, shared_tile(), full, {});
    }
    full.wait(n);
    if (threadIdx.x < 32) {
      std::uint32_t fragment[1];
      tutorial::ldmatrix_x1(fragment, shared_tile() + threadIdx.x % 8 * 64);
      if (fence == ReadFence::of_reader) tutorial::fence_async_proxy();
      if (fence == ReadFence::of_other_reader && threadIdx.x == 8) tutorial::fence_async_proxy();
    }
    __syncthreads();
  }
}

TEST(AsyncProxy, ACopyOverATileThatThreadsHaveReadNeedsAFence) {
  Tensor in(7);
  EXPECT_EQ(run_kernel([&] { read_and_refill(in.map(), ReadFence::of_reader); }), cudaSuccess);
  EXPECT_EQ(run_kernel([&] { read_and_refill(in.map(), ReadFence::of_writer); }), cudaSuccess);
  for (const ReadFence fence : {ReadFence::none, ReadFence::of_other_reader}) {
    EXPECT_THAT(report_of([&] { read_and_refill(in.map(), fence); }),
                AllOf(HasSubstr("a copy may overwrite this tile before thread (0,0,0) has read it at "),
                      HasSubstr("runtime_bulk_copy_test.cu:"),
                      HasSubstr("neither that thread nor this one has called fence_async_proxy() since"),
                      HasSubstr("thread (32,0,0)")));
  }
}

// --- what is skipped ---

__global__ void store_once(const TensorMap map) {
  if (threadIdx.x != 0) return;
  fill_tile(2);
  store_tile(map, shared_tile(), {});
  commit_stores();
  wait_stores<0>();
}
constexpr unsigned kCommit = __LINE__ - 3;

TEST(BulkCopy, ACommitOrAWaitThatIsLeftOutShows) {
  Tensor out(7);
  for (const unsigned line : {kCommit, kCommit + 1}) {
    skip_barrier("runtime_bulk_copy_test.cu", line);
    EXPECT_THAT(report_of([&] { store_once(out.map()); }), HasSubstr("has not waited until its bulk store"));
  }
  skip_no_barrier();
  EXPECT_EQ(run_kernel([&] { store_once(out.map()); }), cudaSuccess);
}

}  // namespace
}  // namespace emulator::test
