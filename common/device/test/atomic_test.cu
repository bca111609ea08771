/// @file
/// Blocks and warps that wait for each other.

#include "common/device/atomic.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

/// Prefix sums over blocks, each adding its number + 1 to what the block before hands it. All threads wait.
template <class Flag>
__global__ void chain(unsigned* tickets, Flag* ready, int* sums) {
  __shared__ unsigned number;
  if (threadIdx.x == 0) number = atomicAdd(tickets, 1);
  __syncthreads();
  int before = 0;
  if (number > 0) {
    wait_until(&ready[number - 1], [](Flag flag) { return flag == 7; });
    before = sums[(number - 1) * blockDim.x + threadIdx.x];
  }
  sums[number * blockDim.x + threadIdx.x] = before + static_cast<int>(number) + 1;
  __syncthreads();
  if (threadIdx.x == 0) store_release(&ready[number], 7);
}

template <class Flag>
void expect_chained() {
  const unsigned blocks = 12, threads = 40;
  DeviceBuffer<unsigned> tickets(std::vector<unsigned>{0});
  DeviceBuffer<Flag> ready(blocks);
  DeviceBuffer<int> sums(blocks * threads);
  ready.fill_bytes(0);
  launch(chain<Flag>, {blocks, threads}, tickets.data(), ready.data(), sums.data());
  const std::vector<int> result = sums.download();
  for (unsigned i = 0; i < blocks; ++i) {
    for (unsigned j = 0; j < threads; ++j) ASSERT_EQ(result[i * threads + j], (i + 1) * (i + 2) / 2);
  }
}

TEST(AcquireRelease, HandsDataFromBlockToBlock) {
  expect_chained<unsigned>();
  expect_chained<int>();
  expect_chained<unsigned long long>();
  expect_chained<long long>();
}

/// The warps of a block hand a number around, each adding one.
__global__ void relay(int* flag, int* data) {
  const int warp = static_cast<int>(threadIdx.x / 32);
  if (threadIdx.x % 32 > 0) return;
  wait_until(flag, [warp](int turn) { return turn == warp; });
  *data += warp * warp;
  store_release(flag, warp + 1);
}

TEST(AcquireRelease, HandsDataFromWarpToWarp) {
  DeviceBuffer<int> flag(std::vector<int>{0}), data(std::vector<int>{0});
  launch(relay, {1, 8 * 32}, flag.data(), data.data());
  EXPECT_EQ(data.download()[0], 140);
  EXPECT_EQ(flag.download()[0], 8);
}

__global__ void store_extremes(std::int64_t* wide, int* narrow) {
  store_release(wide, load_acquire(wide) - 1);
  store_release(narrow, load_acquire(narrow) - 1);
}

TEST(AcquireRelease, KeepsAllBits) {
  DeviceBuffer<std::int64_t> wide(std::vector<std::int64_t>{INT64_MIN + 1});
  DeviceBuffer<int> narrow(std::vector<int>{INT32_MIN + 1});
  launch(store_extremes, {1, 1}, wide.data(), narrow.data());
  EXPECT_EQ(wide.download()[0], INT64_MIN);
  EXPECT_EQ(narrow.download()[0], INT32_MIN);
}

__global__ void add_pair(const std::uint64_t* pair, std::uint64_t* sums) {
  const WordPair words = load_relaxed_pair(pair);
  store_relaxed(&sums[0], words.first + 1);
  store_relaxed(&sums[1], words.second + 2);
}

TEST(Relaxed, ReadsBothWordsOfAPair) {
  DeviceBuffer<std::uint64_t> pair(std::vector<std::uint64_t>{0, 0, UINT64_MAX - 5, 1ull << 63}), sums(2);
  launch(add_pair, {1, 1}, pair.data() + 2, sums.data());
  EXPECT_EQ(sums.download(), (std::vector<std::uint64_t>{UINT64_MAX - 4, (1ull << 63) + 2}));
}

/// Two blocks write a word of the same pair each, and the second waits for the first one's.
__global__ void greet(unsigned* tickets, std::uint64_t* pair, std::uint64_t* heard) {
  const unsigned number = atomicAdd(tickets, 1);
  store_relaxed(&pair[number], 10 + number);
  if (number == 0) return;  // who comes second is sure that the other one has started
  WordPair words{};
  for (;; backoff()) {
    words = load_relaxed_pair(pair);
    if (words.first != 0) break;
  }
  *heard = 100 * words.first + words.second;
}

TEST(Relaxed, APairShowsWhatAnotherBlockStores) {
  DeviceBuffer<unsigned> tickets(std::vector<unsigned>{0});
  DeviceBuffer<std::uint64_t> pair(std::vector<std::uint64_t>{0, 0}), heard(std::vector<std::uint64_t>{0});
  launch(greet, {2, 1}, tickets.data(), pair.data(), heard.data());
  EXPECT_EQ(heard.download()[0], 1011u);
}

}  // namespace
}  // namespace tutorial
