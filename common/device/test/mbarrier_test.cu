/// @file
/// Barriers in shared memory: that a ring of stages hands on values in order.

#include "common/device/mbarrier.cuh"

#include <gtest/gtest.h>

#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

class MBarrier : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = bulk_copies_missing(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

constexpr unsigned kReaders = 64;

/// Warp 0 writes the squares of 0, 1, 2, ... into a ring, and all readers add up what they find, with weights that tell
/// the order: out[reader] = the sum over n of (n + 1) n^2.
template <int kStages>
__global__ void hand_on(int* out, int count) {
  __shared__ Barrier full[kStages], empty[kStages];
  __shared__ int values[kStages][32];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(32);
      empty[i].init(kReaders);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    auto ring = Ring<kStages>::producer();
    for (int n = 0; n < count; ++n) {
      ring.wait(empty);
      values[ring.stage()][threadIdx.x] = n * n;
      full[ring.stage()].arrive();
      ring.advance();
    }
  } else {
    auto ring = Ring<kStages>::consumer();
    int sum = 0;
    for (int n = 0; n < count; ++n) {
      ring.wait(full);
      sum += (n + 1) * values[ring.stage()][(threadIdx.x + 5) % 32];
      empty[ring.stage()].arrive();
      ring.advance();
    }
    out[threadIdx.x - 32] = sum;
  }
}

template <int kStages>
void expect_handed_on() {
  for (const int count : {0, 1, 2, 3, 7, 20}) {
    DeviceBuffer<int> out(kReaders);
    launch(hand_on<kStages>, {1, 32 + kReaders}, out.data(), count);
    int expected = 0;
    for (int n = 0; n < count; ++n) expected += (n + 1) * n * n;
    EXPECT_EQ(out.download(), std::vector<int>(kReaders, expected)) << kStages << " stages, " << count << " values";
  }
}

TEST_F(MBarrier, RingHandsOnValuesInOrder) {
  expect_handed_on<1>();
  expect_handed_on<2>();
  expect_handed_on<3>();
  expect_handed_on<4>();
}

/// The phase before the first counts as ended, and the first ends when the last of two threads has arrived.
__global__ void first_phases(int* out) {
  __shared__ Barrier barrier;
  __shared__ int value;
  if (threadIdx.x == 0) {
    barrier.init(2);
    fence_barrier_init();
    barrier.wait(1);
    value = 7;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) {
    if (threadIdx.x == 0) value = 8;
    barrier.arrive();
  }
  barrier.wait(0);
  out[threadIdx.x] = value;
}

TEST_F(MBarrier, WaitsForTheEndOfAPhase) {
  DeviceBuffer<int> out(64);
  launch(first_phases, {1, 64}, out.data());
  EXPECT_EQ(out.download(), std::vector<int>(64, 8));
}

__global__ void walk_ring(int* stages) {
  auto ring = Ring<3>::consumer();
  for (int i = 0; i < 7; ++i) {
    stages[i] = ring.stage();
    ring.advance();
  }
}

/// Whether a ring that begins after i stages is one that has advanced i times.
__global__ void begin_in_ring(int* is_same) {
  auto consumer = Ring<3>::consumer();
  auto producer = Ring<3>::producer();
  for (int i = 0; i < 7; ++i) {
    is_same[i] = Ring<3>::consumer(i) == consumer && Ring<3>::producer(i) == producer;
    consumer.advance();
    producer.advance();
  }
}

TEST(Ring, BeginsAnywhere) {
  DeviceBuffer<int> is_same(7);
  launch(begin_in_ring, {1, 1}, is_same.data());
  EXPECT_EQ(is_same.download(), std::vector<int>(7, 1));
}

TEST(Ring, GoesRound) {
  DeviceBuffer<int> stages(7);
  launch(walk_ring, {1, 1}, stages.data());
  EXPECT_EQ(stages.download(), (std::vector<int>{0, 1, 2, 0, 1, 2, 0}));
}

}  // namespace
}  // namespace tutorial
