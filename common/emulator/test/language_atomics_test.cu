/// @file
/// Atomic functions, called by many blocks at once.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

#if TUTORIAL_EMULATOR
#include <emulator/counters.hpp>
#endif

namespace tutorial {
namespace {

constexpr unsigned kBlocks = 12, kThreads = 40, kAll = kBlocks * kThreads;

__device__ unsigned thread_number() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

template <class T>
__global__ void add_to_few(T* cells) {
  atomicAdd(&cells[thread_number() % 7], static_cast<T>(thread_number() % 5 + 1.0f));
}

template <class T>
struct AtomicAdd : testing::Test {};
using Addends = testing::Types<int, unsigned, unsigned long long, float, double>;
TYPED_TEST_SUITE(AtomicAdd, Addends);

TYPED_TEST(AtomicAdd, LosesNothing) {
  DeviceBuffer<TypeParam> cells(7);
  cells.fill_bytes(0);
#if TUTORIAL_EMULATOR
  emulator::reset_counters();
#endif
  launch(add_to_few<TypeParam>, {kBlocks, kThreads}, cells.data());
#if TUTORIAL_EMULATOR
  EXPECT_EQ(emulator::counters().atomics, kAll);
#endif
  std::vector<TypeParam> expected(7, TypeParam(0));
  for (unsigned i = 0; i < kAll; ++i) expected[i % 7] += static_cast<TypeParam>(i % 5 + 1);
  EXPECT_EQ(cells.download(), expected);
}

template <class Pair>
__global__ void add_pairs(Pair* cell) {
  atomicAdd(cell, Pair(1.0f, -2.0f));
}
template <class Number>
__global__ void add_numbers(Number* cell) {
  atomicAdd(cell, Number(1.0f));
}

TEST(AtomicAdd, TakesSmallFloats) {
  DeviceBuffer<__half2> half_pair(1);
  DeviceBuffer<__nv_bfloat162> bfloat16_pair(1);
  DeviceBuffer<__half> half_number(2);
  DeviceBuffer<__nv_bfloat16> bfloat16_number(2);
  half_pair.fill_bytes(0);
  bfloat16_pair.fill_bytes(0);
  half_number.fill_bytes(0);
  bfloat16_number.fill_bytes(0);
  launch(add_pairs<__half2>, {4, 32}, half_pair.data());  // sums that both types hold exactly
  launch(add_pairs<__nv_bfloat162>, {4, 32}, bfloat16_pair.data());
  launch(add_numbers<__half>, {4, 32}, half_number.data() + 1);
  launch(add_numbers<__nv_bfloat16>, {4, 32}, bfloat16_number.data() + 1);
  EXPECT_EQ(__low2float(half_pair.download()[0]), 128.0f);
  EXPECT_EQ(__high2float(half_pair.download()[0]), -256.0f);
  EXPECT_EQ(__low2float(bfloat16_pair.download()[0]), 128.0f);
  EXPECT_EQ(__high2float(bfloat16_pair.download()[0]), -256.0f);
  EXPECT_EQ(__half2float(half_number.download()[1]), 128.0f);
  EXPECT_EQ(__half2float(half_number.download()[0]), 0.0f);
  EXPECT_EQ(__bfloat162float(bfloat16_number.download()[1]), 128.0f);
  EXPECT_EQ(__bfloat162float(bfloat16_number.download()[0]), 0.0f);
}

template <class T>
__global__ void combine(T* cells) {
  const T value = static_cast<T>(thread_number() * 2654435761u);
  atomicMin(&cells[0], value);
  atomicMax(&cells[1], value);
  atomicAnd(&cells[2], static_cast<T>(~(T(1) << thread_number() % 20)));
  atomicOr(&cells[3], static_cast<T>(T(1) << thread_number() % 20));
  atomicXor(&cells[4], value);
}

template <class T>
struct AtomicCombine : testing::Test {};
using Integers = testing::Types<int, unsigned, unsigned long long>;
TYPED_TEST_SUITE(AtomicCombine, Integers);

TYPED_TEST(AtomicCombine, TakesAllValues) {
  using T = TypeParam;
  DeviceBuffer<T> cells(std::vector<T>{5, 5, T(-1), 0, 0});
  launch(combine<T>, {kBlocks, kThreads}, cells.data());
  std::vector<T> expected{5, 5, T(-1) ^ 0xFFFFF, 0xFFFFF, 0};
  for (unsigned i = 0; i < kAll; ++i) {
    const T value = static_cast<T>(i * 2654435761u);
    expected[0] = std::min(expected[0], value);
    expected[1] = std::max(expected[1], value);
    expected[4] ^= value;
  }
  EXPECT_EQ(cells.download(), expected);
}

/// Every thread takes a ticket; the order is free, but each number comes once.
__global__ void take_tickets(unsigned* counter, int* tickets) {
  tickets[atomicAdd(counter, 1)] = 1;
}

TEST(Atomics, ReturnTheValueFromBefore) {
  DeviceBuffer<unsigned> counter(std::vector<unsigned>{0});
  DeviceBuffer<int> tickets(kAll);
  tickets.fill_bytes(0);
  launch(take_tickets, {kBlocks, kThreads}, counter.data(), tickets.data());
  EXPECT_EQ(tickets.download(), std::vector<int>(kAll, 1));
}

__global__ void use_every_other(int* signed_cells, unsigned* cells, unsigned long long* wide, float* real,
                                unsigned* returned) {
  atomicSub(&signed_cells[0], 3);
  atomicSub(&cells[0], 3u);
  atomicInc(&cells[1], 4);
  atomicInc(&cells[2], 4);
  atomicDec(&cells[3], 4);
  atomicDec(&cells[4], 4);
  atomicDec(&cells[5], 4);
  returned[0] = atomicCAS(&cells[6], 7u, 100u);
  returned[1] = atomicCAS(&cells[7], 8u, 100u);
  returned[2] = atomicExch(&cells[8], 1000u);
  returned[3] = static_cast<unsigned>(atomicExch(real, 2.5f));
  returned[4] = static_cast<unsigned>(atomicCAS(wide, 1ull, 1ull << 40));
}

TEST(Atomics, DoWhatTheirNamesSay) {
  DeviceBuffer<int> signed_cells(std::vector<int>{1});
  DeviceBuffer<unsigned> cells(std::vector<unsigned>{1, 3, 4, 0, 3, 9, 7, 7, 9});
  DeviceBuffer<unsigned long long> wide(std::vector<unsigned long long>{1});
  DeviceBuffer<float> real(std::vector<float>{4});
  DeviceBuffer<unsigned> returned(5);
  launch(use_every_other, {1, 1}, signed_cells.data(), cells.data(), wide.data(), real.data(), returned.data());
  EXPECT_EQ(signed_cells.download()[0], -2);
  EXPECT_EQ(cells.download(), (std::vector<unsigned>{0u - 2, 4, 0, 4, 2, 4, 100, 7, 1000}));
  EXPECT_EQ(wide.download()[0], 1ull << 40);
  EXPECT_EQ(real.download()[0], 2.5f);
  EXPECT_EQ(returned.download(), (std::vector<unsigned>{7, 7, 9, 4, 1}));
}

/// A spin lock made of atomicCAS and atomicExch guards an ordinary counter, one thread per block.
__global__ void count_under_lock(int* lock, volatile int* counter) {
  while (atomicCAS(lock, 0, 1) != 0) __nanosleep(10);
  __threadfence();
  *counter = *counter + 1;
  __threadfence();
  atomicExch(lock, 0);
}

TEST(Atomics, MakeALock) {
  DeviceBuffer<int> lock(std::vector<int>{0}), counter(std::vector<int>{0});
  launch(count_under_lock, {50, 1}, lock.data(), counter.data());
  EXPECT_EQ(counter.download()[0], 50);
}

__global__ void add_in_shared(int* out) {
  __shared__ int sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  atomicAdd(&sum, static_cast<int>(threadIdx.x));
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

TEST(Atomics, WorkInSharedMemory) {
  DeviceBuffer<int> out(10);
  launch(add_in_shared, {10, 100}, out.data());
  EXPECT_EQ(out.download(), std::vector<int>(10, 4950));
}

}  // namespace
}  // namespace tutorial
