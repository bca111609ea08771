/// @file
/// Warps with different tasks: named barriers between them, registers that change hands, and one lane that acts for
/// all.

#include <gtest/gtest.h>

#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/device.hpp"
#include "common/device/elect.cuh"
#include "common/device/launch.cuh"
#include "common/device/named_barrier.cuh"
#include "common/device/registers.cuh"

namespace tutorial {
namespace {

/// Warps 0 and 1 write what warps 2 and 3 read, several times over. Barrier 1: written. Barrier 2: read.
__global__ void take_turns(int* out, int rounds) {
  __shared__ int values[64];
  const unsigned i = threadIdx.x % 64;
  int sum = 0;
  for (int n = 0; n < rounds; ++n) {
    if (threadIdx.x < 64) {
      if (n > 0) wait_at_named_barrier(2, 128);
      values[i] = static_cast<int>(i) + n;
      arrive_at_named_barrier(1, 128);
    } else {
      wait_at_named_barrier(1, 128);
      sum += values[63 - i];
      if (n + 1 < rounds) arrive_at_named_barrier(2, 128);
    }
  }
  if (threadIdx.x >= 64) out[i] = sum;
}

TEST(NamedBarrier, LetsGroupsOfWarpsTakeTurns) {
  constexpr int kRounds = 5;
  DeviceBuffer<int> out(64);
  launch(take_turns, {1, 128}, out.data(), kRounds);
  const std::vector<int> result = out.download();
  for (int i = 0; i < 64; ++i) EXPECT_EQ(result[static_cast<std::size_t>(i)], kRounds * (63 - i) + 10) << i;
}

/// Each pair of warps meets at a barrier of its own.
__global__ void meet_in_pairs(int* out) {
  __shared__ int values[256];
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  wait_at_named_barrier(1 + threadIdx.x / 64, 64);
  out[threadIdx.x] = values[threadIdx.x ^ 63];
}

TEST(NamedBarrier, OrdersThoseThatMeetAtIt) {
  DeviceBuffer<int> out(256);
  launch(meet_in_pairs, {1, 256}, out.data());
  const std::vector<int> result = out.download();
  for (int i = 0; i < 256; ++i) EXPECT_EQ(result[static_cast<std::size_t>(i)], i ^ 63) << i;
}

__global__ void elect(int* out) {
  const bool first = elect_one(), second = elect_one();
  out[threadIdx.x] = first == second ? first : -1;
}

TEST(Elect, ChoosesTheSameLaneEachTime) {
  if (const std::string reason = bulk_copies_missing(); !reason.empty()) GTEST_SKIP() << reason;
  DeviceBuffer<int> out(64);
  launch(elect, {1, 64}, out.data());
  const std::vector<int> result = out.download();
  for (int warp = 0; warp < 2; ++warp) {
    int elected = 0;
    for (int lane = 0; lane < 32; ++lane) {
      const int is_elected = result[static_cast<std::size_t>(32 * warp + lane)];
      EXPECT_GE(is_elected, 0);
      elected += is_elected;
    }
    EXPECT_EQ(elected, 1);
  }
}

/// Warpgroup 0 gives registers to warpgroups 1 and 2.
__global__ void __launch_bounds__(384, 1) hand_over_registers(int* out) {
  if (threadIdx.x < 128) {
    decrease_registers<24>();
    out[threadIdx.x] = 24;
  } else {
    increase_registers<240>();
    out[threadIdx.x] = 240;
  }
}

TEST(Registers, ChangeHands) {
  if (const std::string reason = bulk_copies_missing(); !reason.empty()) GTEST_SKIP() << reason;
  DeviceBuffer<int> out(384);
  launch(hand_over_registers, {1, 384}, out.data());
  const std::vector<int> result = out.download();
  for (std::size_t i = 0; i < 384; ++i) EXPECT_EQ(result[i], i < 128 ? 24 : 240);
}

}  // namespace
}  // namespace tutorial
