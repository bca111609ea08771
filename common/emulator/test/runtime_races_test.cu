// The detector of races: what it finds, in every order of threads, and what it must not report.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/barrier.hpp>
#include <emulator/fences.hpp>
#include <emulator/races.hpp>
#include <emulator/schedule.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "common/device/atomic.cuh"
#include "common/device/buffer.hpp"
#include "common/device/bulk_copy.cuh"
#include "common/device/cluster.cuh"
#include "common/device/cp_async.cuh"
#include "common/device/early_start.cuh"
#include "common/device/launch.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/push_shared.cuh"
#include "common/tile/swizzled_tile.cuh"
#include "runtime_support.hpp"

namespace tutorial {
namespace {

using emulator::Finding;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

const char* const kSchedules[] = {"forward", "reverse", "warps", "warps-reverse", "random:1"};

class Races : public testing::Test {
 protected:
  void SetUp() override {
    emulator::collect_findings();
    emulator::take_findings();
  }
  void TearDown() override {
    emulator::set_schedule("");
    emulator::forget_names();
  }

  /// The first that a launch in this order finds, races first; an empty text if it finds nothing.
  static std::string first() {
    const std::vector<Finding> findings = emulator::take_findings();
    for (const Finding& one : findings) {
      if (one.kind != Finding::Kind::unwritten) return one.text;
    }
    return findings.empty() ? "" : findings.front().text;
  }
  /// That of a kernel without arguments, which has to be the same kind of sentence in all orders.
  template <class... Arguments>
  static void expect(const testing::Matcher<std::string>& matcher, const LaunchConfig& config,
                     void (*kernel)(Arguments...), Arguments... arguments) {
    for (const char* schedule : kSchedules) {
      emulator::set_schedule(schedule);
      launch(kernel, config, arguments...);
      EXPECT_THAT(first(), matcher) << schedule;
    }
  }
};

// --- barriers of a block and of a warp ---

__global__ void reverse_in_block(float* y, bool has_barrier) {
  __shared__ float tile[64];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (has_barrier) __syncthreads();
  y[threadIdx.x] = tile[63 - threadIdx.x];
}

TEST_F(Races, ABarrierIsMissing) {
  std::vector<float> y(64);
  expect(IsEmpty(), {1, 64}, reverse_in_block, y.data(), true);
  expect(AllOf(ContainsRegex("^tile\\[[0-9]+\\]: (written|read) at .*runtime_races_test.cu:[0-9]+ by thread "),
               HasSubstr("no barrier lies between: is one missing between lines ")),
         {1, 64}, reverse_in_block, y.data(), false);
}

__global__ void reverse_in_warp(float* y, int how) {
  __shared__ float tile[32];
  tile[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (how == 1) __syncwarp();
  if (how == 2) (void)__shfl_xor_sync(~0u, 1, 16);
  if (how == 3) __syncwarp(threadIdx.x < 16 ? 0xFFFFu : 0xFFFF0000u);
  y[threadIdx.x] = tile[31 - threadIdx.x];
}

TEST_F(Races, LanesAreOrderedBySyncwarpAndNotByShuffles) {
  std::vector<float> y(32);
  expect(IsEmpty(), {1, 32}, reverse_in_warp, y.data(), 1);
  expect(HasSubstr("tile["), {1, 32}, reverse_in_warp, y.data(), 0);
  expect(HasSubstr("tile["), {1, 32}, reverse_in_warp, y.data(), 2);
  expect(HasSubstr("tile["), {1, 32}, reverse_in_warp, y.data(), 3);
}

/// All threads read one element, one of them after the barrier of the others.
__global__ void one_reads_late(float* y) {
  __shared__ float value;
  if (threadIdx.x == 0) value = 1;
  __syncthreads();
  const bool is_late = threadIdx.x == 37;
  float sum = is_late ? 0 : value;
  __syncthreads();
  if (is_late) sum = value;
  if (threadIdx.x == 64) value = 2;
  y[threadIdx.x] = sum;
}

TEST_F(Races, EachOfManyReadersCounts) {
  std::vector<float> y(128);
  expect(AllOf(HasSubstr("value: "), HasSubstr("thread (37,0,0)"), HasSubstr("thread (64,0,0)")), {1, 128},
         one_reads_late, y.data());
}

__global__ void neighbours(std::uint16_t* halves, std::uint8_t* bytes) {
  halves[threadIdx.x] = static_cast<std::uint16_t>(threadIdx.x);
  bytes[threadIdx.x] = static_cast<std::uint8_t>(threadIdx.x);
}

__global__ void overlapping(std::uint16_t* halves) {
  if (threadIdx.x == 0) *reinterpret_cast<std::uint32_t*>(halves) = 0;
  if (threadIdx.x == 1) halves[1] = 1;
}

TEST_F(Races, NeighboursDoNotRaceAndPartsDo) {
  std::vector<std::uint16_t> halves(64);
  std::vector<std::uint8_t> bytes(64);
  expect(IsEmpty(), {1, 64}, neighbours, halves.data(), bytes.data());
  expect(HasSubstr("no barrier lies between"), {1, 64}, overlapping, halves.data());
}

// --- named barriers, mbarriers ---

__global__ void hand_on(float* y, int how) {
  __shared__ float tile[32];
  if (threadIdx.x < 32) {
    if (how != 1) tile[threadIdx.x] = 1;
    arrive_at_named_barrier(1, 64);
    if (how == 1) tile[threadIdx.x] = 1;
  } else {
    if (how == 2) y[threadIdx.x] = tile[threadIdx.x - 32];
    wait_at_named_barrier(1, 64);
    if (how != 2) y[threadIdx.x] = tile[threadIdx.x - 32];
  }
}

TEST_F(Races, ANamedBarrierOrdersWhatComesBeforeTheArrival) {
  std::vector<float> y(64);
  expect(IsEmpty(), {1, 64}, hand_on, y.data(), 0);
  expect(ContainsRegex("the arrival at :[0-9]+ (comes before the write|follows the)|no barrier lies"), {1, 64}, hand_on,
         y.data(), 1);
  expect(HasSubstr("tile["), {1, 64}, hand_on, y.data(), 2);
}

/// A ring of one stage between two warps. @param how 1: arrives at `full` too early, 2: at `empty` too early, 3 and 4: does
/// not wait for one of them
__global__ void ring(float* y, int how) {
  __shared__ float stage[32];
  __shared__ Barrier full[1], empty[1];
  if (threadIdx.x == 0) {
    full[0].init(32), empty[0].init(32);
    fence_barrier_init();
  }
  __syncthreads();
  const unsigned lane = threadIdx.x % 32;
  float sum = 0;
  auto producer = Ring<1>::producer(), consumer = Ring<1>::consumer();
  for (int n = 0; n < 3; ++n) {
    if (threadIdx.x < 32) {
      if (how != 4) producer.wait(empty);
      if (how == 1) full[0].arrive();
      stage[lane] = 1;
      if (how != 1) full[0].arrive();
      producer.advance();
    } else {
      if (how != 3) consumer.wait(full);
      if (how == 2) empty[0].arrive();
      sum += stage[31 - lane];
      if (how != 2) empty[0].arrive();
      consumer.advance();
    }
  }
  if (threadIdx.x >= 32) y[lane] = sum;
}

TEST_F(Races, AnArrivalOrdersWhatComesBeforeIt) {
  std::vector<float> y(32);
  expect(IsEmpty(), {1, 64}, ring, y.data(), 0);
  expect(HasSubstr("comes before the write"), {1, 64}, ring, y.data(), 1);
  expect(HasSubstr("comes before the read"), {1, 64}, ring, y.data(), 2);
}

// --- copies ---

/// @param how 1: does not wait for its copy, 2: no barrier follows the wait
__global__ void copy(const float* x, float* y, int how) {
  alignas(16) __shared__ float tile[64];
  cp_async<4>(&tile[threadIdx.x], &x[threadIdx.x]);
  cp_async_commit();
  if (how == 1) {
    cp_async_wait<1>();
  } else {
    cp_async_wait<0>();
  }
  if (how != 2) __syncthreads();
  y[threadIdx.x] = tile[how == 1 ? threadIdx.x : 63 - threadIdx.x];
}

TEST_F(Races, AnAsynchronousCopyIsWaitedForAndHandedOn) {
  std::vector<float> x(64), y(64);
  expect(IsEmpty(), {1, 64}, copy, static_cast<const float*>(x.data()), y.data(), 0);
  expect(HasSubstr("the copy is not waited for in between"), {1, 64}, copy, static_cast<const float*>(x.data()),
         y.data(), 1);
  expect(HasSubstr("tile["), {1, 64}, copy, static_cast<const float*>(x.data()), y.data(), 2);
}

constexpr unsigned kTileBytes = 64 * 128;

/// @param how 1: reads the second tile when the first has come, 2: loads over a tile that is being read,
/// 3: loads both tiles to one place, 4 to 6: threads have stored there; nobody fences, or they do, or the one that loads
__global__ void load(const TensorMap map, float* y, int how) {
  __shared__ Barrier full[2];
  auto* tiles = dynamic_shared<std::uint16_t, 1024>();
  if (threadIdx.x == 0) {
    full[0].init(1), full[1].init(1);
    fence_barrier_init();
    for (int i = 0; i < 2; ++i) {
      full[i].arrive_expect(kTileBytes);
      load_tile(map, tiles + (how == 3 ? 1 : i) * kTileBytes / 2, full[i], {});
    }
  }
  __syncthreads();
  full[0].wait(0);
  if (how != 1) full[1].wait(0);
  const float value = tiles[kTileBytes / 2 + threadIdx.x];
  if (how >= 4) tiles[kTileBytes / 2 + threadIdx.x] = 1;
  if (how == 5) fence_async_proxy();
  if (how != 2) __syncthreads();
  if (threadIdx.x == 0) {
    if (how != 4 && how != 5) fence_async_proxy();
    full[0].arrive_expect(kTileBytes);
    load_tile(map, tiles + kTileBytes / 2, full[0], {});
  }
  full[0].wait(1);
  full[1].wait(0);
  y[threadIdx.x] = value;
}

TEST_F(Races, ABulkLoadIsOrderedByItsBarrier) {
  std::vector<__nv_bfloat16> memory(64 * 64 + 8);
  auto* x = reinterpret_cast<__nv_bfloat16*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 15) / 16 * 16);
  const TensorMap map = tile_map(packed(x, 1, 64, 64), {.B = 1, .H = 1, .L = 64, .D = 64}, 64);
  std::vector<float> y(64);
  LaunchConfig config(1, 64, 2 * kTileBytes);
  expect(IsEmpty(), config, load, map, y.data(), 0);
  expect(HasSubstr("by a bulk copy"), config, load, map, y.data(), 1);
  expect(HasSubstr("by a bulk copy"), config, load, map, y.data(), 2);
  expect(HasSubstr("nothing orders the two copies"), config, load, map, y.data(), 3);
  expect(HasSubstr("fence_async_proxy() is missing: thread "), config, load, map, y.data(), 4);
  expect(IsEmpty(), config, load, map, y.data(), 5);
  expect(IsEmpty(), config, load, map, y.data(), 6);
}

/// @param how 1: no fence, 2: the fence comes before the stores, 3: only the thread that issues the copy fences, 4: stores
/// again before the copy has read the tile
__global__ void store(const TensorMap map, int how) {
  auto* tile = dynamic_shared<__nv_bfloat16, 1024>();
  if (how == 2) fence_async_proxy();
  for (unsigned i = threadIdx.x; i < kTileBytes / 2; i += 64) store_for_copies(&tile[i], __float2bfloat16(1.0f));
  if (how == 0 || how == 4) fence_async_proxy();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (how == 3) fence_async_proxy();
    store_tile(map, tile, {});
    commit_stores();
    if (how != 4) wait_stores_read<0>();
  }
  __syncthreads();
  tile[threadIdx.x] = __float2bfloat16(2.0f);
  if (how == 4 && threadIdx.x == 0) wait_stores_read<0>();
}

TEST_F(Races, ABulkStoreReadsWhatIsFencedAndNotOverwritten) {
  std::vector<__nv_bfloat16> memory(64 * 64 + 8);
  auto* y = reinterpret_cast<__nv_bfloat16*>((reinterpret_cast<std::uintptr_t>(memory.data()) + 15) / 16 * 16);
  const TensorMap map = tile_map(packed(y, 1, 64, 64), {.B = 1, .H = 1, .L = 64, .D = 64}, 64);
  LaunchConfig config(1, 64, kTileBytes);
  const auto fence = HasSubstr("through the async proxy, and fence_async_proxy() is missing: thread ");
  expect(IsEmpty(), config, store, map, 0);
  expect(fence, config, store, map, 1);
  expect(fence, config, store, map, 2);
  expect(fence, config, store, map, 3);
  expect(AllOf(HasSubstr("by a copy of thread (0,0,0)"), HasSubstr("the copy is not waited for in between")), config,
         store, map, 4);
}

// --- clusters ---

/// @param how 1: the arrival comes before the store, 2: nobody waits
__global__ void write_to_peer(float* y, int how) {
  auto* mine = dynamic_shared<float>();
  auto& full = *reinterpret_cast<Barrier*>(mine + 64);
  if (threadIdx.x == 0) {
    full.init(32);
    fence_barrier_init();
  }
  cluster_sync();
  const unsigned peer = 1 - cluster_rank();
  float* theirs = peer_shared(mine, peer);
  if (how == 1) full.arrive_at(peer);
  theirs[threadIdx.x] = 1;
  if (how != 1) full.arrive_at(peer);
  if (how == 2) y[blockIdx.x * 32 + threadIdx.x] = mine[31 - threadIdx.x];
  full.wait_cluster(0);
  if (how != 2) y[blockIdx.x * 32 + threadIdx.x] = mine[31 - threadIdx.x];
  cluster_sync();
}

TEST_F(Races, MemoryOfAnotherBlockIsOrderedByArrivals) {
  std::vector<float> y(64);
  LaunchConfig config(2, 32, 1024);
  config.cluster = 2;
  expect(IsEmpty(), config, write_to_peer, y.data(), 0);
  expect(AllOf(HasSubstr("dynamic shared memory at byte"), HasSubstr(" of block (")), config, write_to_peer, y.data(),
         1);
  expect(HasSubstr(" of block ("), config, write_to_peer, y.data(), 2);
}

// --- blocks ---

/// One lane of each warp adds to the number of the warp before, in another block or in the same. @param how 1: the flag is stored first, 2: without release, 3: it is
/// loaded without acquire, 4: plainly, 5: stored plainly, 6: fences in place of release and acquire, 7: only one fence,
/// 8: the number is read first
__global__ void chain(unsigned* numbers, unsigned* flags, unsigned* counter, int how) {
  if (threadIdx.x % 32 != 0) return;
  const unsigned n = atomicAdd(counter, 1u);
  unsigned before = 0;
  if (n > 0) {
    if (how == 8) before = numbers[n - 1];
    const auto is_set = [&] {
      if (how == 4) return flags[n - 1] != 0;
      if (how == 3 || how == 6 || how == 7) return load_relaxed(flags + n - 1) != 0;
      return load_acquire(flags + n - 1) != 0;
    };
    while (!is_set()) backoff();
    if (how == 6 || how == 7) __threadfence();
    if (how != 8) before = numbers[n - 1] + (n > 1 ? numbers[0] - numbers[0] : 0);
  }
  if (how != 1) numbers[n] = before + 1;
  if (how == 6) __threadfence();
  if (how == 2 || how == 6 || how == 7) {
    store_relaxed(flags + n, 1u);
  } else if (how == 5) {
    flags[n] = 1;
  } else {
    store_release(flags + n, 1u);
  }
  if (how == 1) numbers[n] = before + 1;
}

TEST_F(Races, AFlagOrdersBlocksAndWarps) {
  struct Case {
    int how;
    const char* says;
  };
  for (const auto& [how, says] : {Case{0, "^$"},
                                  {1, "it is announced by flags\\[[0-9]+\\] at :[0-9]+, but written after it at :"},
                                  {2, "flags\\[[0-9]+\\] is stored at .* without release: use store_release"},
                                  {3, "flags\\[[0-9]+\\] is read at .*:[0-9]+ without acquire: use load_acquire"},
                                  {4, "the flag is read plainly at .*: use load_acquire"},
                                  {5, "the flag is written plainly at .*: use store_release"},
                                  {6, "^$"},
                                  {7, "^numbers\\[[0-9]+\\]: "},
                                  {8, "announces it at .*, and the read comes before an acquire of that"}}) {
    for (const bool is_one_block : {false, true}) {
      for (const char* schedule : kSchedules) {
        std::vector<unsigned> numbers(5), flags(5), counter(1);
        emulator::forget_names();
        emulator::name_memory({.address = numbers.data(), .bytes = 20, .element_bytes = 4, .name = "numbers"});
        emulator::name_memory({.address = flags.data(), .bytes = 20, .element_bytes = 4, .name = "flags"});
        emulator::set_schedule(schedule);
        launch(chain, is_one_block ? LaunchConfig(1, 5 * 32) : LaunchConfig(5, 32), numbers.data(), flags.data(),
               counter.data(), how);
        EXPECT_THAT(first(), ContainsRegex(says)) << how << ", " << schedule << (is_one_block ? ", one block" : "");
        EXPECT_EQ(numbers[4], 5u);
      }
    }
  }
}

__global__ void add_up(unsigned* sum, bool is_atomic) {
  if (is_atomic) {
    atomicAdd(sum, 1u);
  } else {
    *sum += 1;
  }
}

TEST_F(Races, AtomicOperationsDoNotRaceWithEachOther) {
  unsigned sum = 0;
  expect(IsEmpty(), {4, 32}, add_up, &sum, true);
  expect(testing::Not(IsEmpty()), {4, 32}, add_up, &sum, false);
}

// --- launches ---

__global__ void write_first(float* x) {
  let_next_kernel_start();
  x[threadIdx.x] = 1;
}

__global__ void read_then(const float* x, float* y, bool waits) {
  if (waits) wait_for_previous_kernel();
  y[threadIdx.x] = x[threadIdx.x];
}

TEST_F(Races, AKernelThatStartsEarlyWaits) {
  std::vector<float> x(32), y(32);
  LaunchConfig early(1, 32);
  early.starts_early = true;
  for (const bool waits : {true, false}) {
    launch(write_first, {1, 32}, x.data());
    launch(read_then, early, static_cast<const float*>(x.data()), y.data(), waits);
    EXPECT_THAT(first(), waits ? testing::Matcher<std::string>(IsEmpty())
                               : HasSubstr("it has to call wait_for_previous_kernel() first"));
  }
  launch(write_first, {1, 32}, x.data());
  launch(read_then, {1, 32}, static_cast<const float*>(x.data()), y.data(), false);
  EXPECT_THAT(first(), IsEmpty()) << "a kernel that does not start early";
}

// --- streams ---

/// Two streams that do not wait for the default one, an event, and device memory.
class StreamRaces : public Races {
 protected:
  void SetUp() override {
    Races::SetUp();
    for (cudaStream_t& one : streams_) check(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  void TearDown() override {
    check(cudaDeviceSynchronize());
    check(cudaEventDestroy(event_));
    for (const cudaStream_t one : streams_) check(cudaStreamDestroy(one));
    Races::TearDown();
  }

 public:
  void write(int stream) {
    set_current_stream(streams_[stream]);
    launch(write_first, {1, 32}, x_.data());
    set_current_stream(nullptr);
  }
  void read(int stream) { read(stream, y_); }
  void read(int stream, DeviceBuffer<float>& y) {
    set_current_stream(streams_[stream]);
    launch(read_then, {1, 32}, static_cast<const float*>(x_.data()), y.data(), false);
    set_current_stream(nullptr);
  }
  void read_by_copy(int stream) {
    check(cudaMemcpyAsync(y_.data(), x_.data(), 128, cudaMemcpyDeviceToDevice, streams_[stream]));
  }
  void write_by_copy(int stream) {
    check(cudaMemcpyAsync(x_.data(), host_, 128, cudaMemcpyHostToDevice, streams_[stream]));
  }
  void order(int first, int second) {
    check(cudaEventRecord(event_, streams_[first]));
    check(cudaStreamWaitEvent(streams_[second], event_, 0));
  }

 protected:
  cudaStream_t streams_[2];
  cudaEvent_t event_;
  DeviceBuffer<float> x_{32}, y_{32};
  float host_[32] = {};
};

const auto kStreamsHint = HasSubstr("work of different streams, and the second stream has to wait for an event");

TEST_F(StreamRaces, KernelsOfTwoStreamsAreOrderedByAnEvent) {
  write(0);
  order(0, 1);
  read(1);
  EXPECT_THAT(first(), IsEmpty());
  order(1, 0);
  write(0);
  EXPECT_THAT(first(), IsEmpty());
  read(1);
  EXPECT_THAT(first(), AllOf(kStreamsHint, ContainsRegex("^global memory .*: written at .*:[0-9]+ by a kernel before, "
                                                         "read at .*:[0-9]+ by thread \\(0,0,0\\)")));
  write(0);
  EXPECT_THAT(first(), kStreamsHint) << "the read before";
}

TEST_F(StreamRaces, AnEventStandsForWhatComesBeforeItAlone) {
  check(cudaEventRecord(event_, streams_[0]));
  write(0);
  check(cudaStreamWaitEvent(streams_[1], event_, 0));
  read(1);
  EXPECT_THAT(first(), kStreamsHint);
}

TEST_F(StreamRaces, WhatStreamZeroHasDoneReachesAThirdStreamThroughTheSecond) {
  cudaStream_t third;
  check(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
  write(0);
  order(0, 1);
  check(cudaEventRecord(event_, streams_[1]));
  check(cudaStreamWaitEvent(third, event_, 0));
  std::swap(third, streams_[1]);
  read(1);
  EXPECT_THAT(first(), IsEmpty());
  check(cudaStreamDestroy(third));
}

TEST_F(StreamRaces, CopiesAreWorkOfTheirStream) {
  using Step = void (StreamRaces::*)(int);
  const Step write = &StreamRaces::write, read = &StreamRaces::read;
  const Step write_by_copy = &StreamRaces::write_by_copy, read_by_copy = &StreamRaces::read_by_copy;
  for (const auto& [before, after] :
       {std::pair(write, read_by_copy), std::pair(read, write_by_copy), std::pair(write_by_copy, read),
        std::pair(read_by_copy, write), std::pair(write_by_copy, write_by_copy), std::pair(write, write_by_copy)}) {
    for (const bool is_ordered : {true, false}) {
      (this->*before)(0);
      if (is_ordered) order(0, 1);
      (this->*after)(1);
      EXPECT_THAT(first(), is_ordered ? testing::Matcher<std::string>(IsEmpty()) : kStreamsHint);
      check(cudaDeviceSynchronize());
    }
  }
  DeviceBuffer<float> z(32);
  this->read_by_copy(0);
  this->read(1, z);
  EXPECT_THAT(first(), IsEmpty()) << "both read";
}

TEST_F(StreamRaces, AHostThatWaitsOrdersWhatItStartsThen) {
  for (int how = 0; how < 5; ++how) {
    write(0);
    if (how == 0) check(cudaStreamSynchronize(streams_[0]));
    if (how == 1) check(cudaDeviceSynchronize());
    if (how >= 2) check(cudaEventRecord(event_, streams_[how == 4]));  // 4: of the wrong stream
    if (how == 2 || how == 4) check(cudaEventSynchronize(event_));
    if (how == 3) check(cudaEventQuery(event_));
    read(1);
    EXPECT_THAT(first(), how < 4 ? testing::Matcher<std::string>(IsEmpty()) : kStreamsHint) << how;
    check(cudaDeviceSynchronize());
  }
}

TEST_F(StreamRaces, TheDefaultStreamWaitsForThoseThatWaitForIt) {
  cudaStream_t waiting;
  check(cudaStreamCreate(&waiting));
  std::swap(waiting, streams_[0]);
  write(0);
  launch(read_then, {1, 32}, static_cast<const float*>(x_.data()), y_.data(), false);
  write(0);
  EXPECT_THAT(first(), IsEmpty());
  check(cudaDeviceSynchronize());
  write(1);
  launch(read_then, {1, 32}, static_cast<const float*>(x_.data()), y_.data(), false);
  EXPECT_THAT(first(), kStreamsHint) << "a stream that does not wait for it";
  std::swap(waiting, streams_[0]);
  check(cudaStreamDestroy(waiting));
}

TEST_F(StreamRaces, BranchesOfAGraphAreOrderedByEventsThatItHasCaptured) {
  for (const bool is_ordered : {true, false}) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    check(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeGlobal));
    if (!is_ordered) order(0, 1);
    write(0);
    if (is_ordered) order(0, 1);
    read(1);
    order(1, 0);
    check(cudaStreamEndCapture(streams_[0], &graph));
    std::size_t nodes = 0;
    check(cudaGraphGetNodes(graph, nullptr, &nodes));
    EXPECT_EQ(nodes, 2u);
    check(cudaGraphInstantiate(&executable, graph, 0));
    for (int i = 0; i < 2; ++i) {
      check(cudaGraphLaunch(executable, streams_[0]));
      EXPECT_THAT(first(), is_ordered ? testing::Matcher<std::string>(IsEmpty()) : kStreamsHint) << i;
    }
    check(cudaGraphExecDestroy(executable));
    check(cudaGraphDestroy(graph));
  }
}

TEST_F(StreamRaces, MemoryThatIsFreedAndComesAgainIsNew) {
  write(0);
  const float* const before = x_.data();
  x_ = {};
  x_ = DeviceBuffer<float>(32);
  if (x_.data() != before) GTEST_SKIP() << "the memory did not come again";
  read(1);
  EXPECT_THAT(first(), IsEmpty());
}

__global__ void read_too_much(float* y) {
  __shared__ float tile[4][8];
  if (threadIdx.x < 31) tile[threadIdx.x / 8][threadIdx.x % 8] = 1;
  __syncthreads();
  y[threadIdx.x] = tile[threadIdx.x / 8][threadIdx.x % 8];
}

TEST_F(Races, AReadOfWhatNothingHasWrittenIsNamedByRowAndColumn) {
  std::vector<float> y(32);
  expect(ContainsRegex(
             "^tile\\[3\\]\\[7\\]: read at .*:[0-9]+ by thread \\(31,0,0\\) of block \\(0,0,0\\) before anything"),
         {1, 32}, read_too_much, y.data());
}

TEST_F(Races, KnowWhetherMemoryWasWrittenAndHowMuch) {
  std::vector<float> y(64);
  emulator::name_memory({.address = y.data(), .bytes = 256, .element_bytes = 4, .name = "y", .is_written = false});
  launch(read_too_much, {1, 32}, y.data());
  EXPECT_TRUE(emulator::was_written(&y[31]));
  EXPECT_FALSE(emulator::was_written(&y[32]));
  EXPECT_EQ(emulator::find_named_memory(&y[5])->bytes_written, 128u);
}

}  // namespace
}  // namespace tutorial
