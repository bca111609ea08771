// Memory of the device: its contents, its limits, and calls that leave an allocation.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::Each;

class Memory : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(cudaMalloc(&device_, kBytes), cudaSuccess); }
  void TearDown() override {
    EXPECT_EQ(cudaFree(device_), cudaSuccess);
    (void)cudaGetLastError();
  }

  static constexpr std::size_t kBytes = 1000;
  char* device_ = nullptr;
  std::vector<char> host_ = std::vector<char>(2 * kBytes, 5);
};

TEST_F(Memory, IsAlignedAndFullOfNan) {
  float* values = nullptr;
  ASSERT_EQ(cudaMalloc(&values, 333 * sizeof(float)), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values) % 256, 0u);
  for (int i = 0; i < 333; ++i) EXPECT_TRUE(std::isnan(values[i]));
  EXPECT_EQ(cudaFree(values), cudaSuccess);
}

TEST_F(Memory, CopiesBothWays) {
  char* other = nullptr;
  ASSERT_EQ(cudaMalloc(&other, kBytes), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(device_, host_.data(), kBytes, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset(device_, 7, 10), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(other, device_, kBytes, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(host_.data(), other, kBytes, cudaMemcpyDefault), cudaSuccess);
  for (std::size_t i = 0; i < kBytes; ++i) EXPECT_EQ(host_[i], i < 10 ? 7 : 5);
  EXPECT_EQ(cudaFree(other), cudaSuccess);
}

TEST_F(Memory, CallsBeyondAnAllocationAreRefused) {
  EXPECT_EQ(cudaMemcpy(device_, host_.data(), kBytes + 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device_ + 1, host_.data(), kBytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host_.data(), device_, kBytes + 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host_.data(), device_, kBytes + 1, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device_, device_ + 1, kBytes, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(device_, 0, kBytes + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(device_ + kBytes, 0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host_.data(), 0, 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(nullptr, 0, 1), cudaErrorInvalidValue);
  for (std::size_t i = 0; i < kBytes; ++i) EXPECT_EQ(device_[i], '\xFF');

  EXPECT_EQ(cudaMemcpy(device_ + 1, host_.data(), kBytes - 1, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset(device_ + kBytes - 1, 0, 1), cudaSuccess);
  EXPECT_EQ(cudaMemset(nullptr, 0, 0), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(nullptr, host_.data(), 0, cudaMemcpyHostToDevice), cudaSuccess);
}

TEST_F(Memory, CopiesInTheWrongDirectionAreRefused) {
  EXPECT_EQ(cudaMemcpy(host_.data(), device_, kBytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device_, host_.data(), kBytes, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device_, host_.data(), kBytes, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device_, host_.data(), kBytes, cudaMemcpyHostToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device_, host_.data(), kBytes, static_cast<cudaMemcpyKind>(7)), cudaErrorInvalidMemcpyDirection);
}

TEST_F(Memory, FreeTakesOnlyWhatMallocGave) {
  EXPECT_EQ(cudaFree(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFree(device_ + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(host_.data()), cudaErrorInvalidValue);
  char* freed = nullptr;
  ASSERT_EQ(cudaMalloc(&freed, 1), cudaSuccess);
  EXPECT_EQ(cudaFree(freed), cudaSuccess);
  EXPECT_EQ(cudaFree(freed), cudaErrorInvalidValue);
}

TEST_F(Memory, NothingIsANullPointer) {
  void* pointer = &host_;
  EXPECT_EQ(cudaMalloc(&pointer, 0), cudaSuccess);
  EXPECT_EQ(pointer, nullptr);
}

TEST_F(Memory, RunsOut) {
  const Environment environment("EMULATOR_MEMORY", "10000");
  std::size_t available = 0;
  std::size_t total = 0;
  ASSERT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  EXPECT_EQ(total, 10000u);
  EXPECT_EQ(available, 10000 - kBytes);
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, available + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(pointer, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  ASSERT_EQ(cudaMalloc(&pointer, available), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  EXPECT_EQ(available, 0u);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&available, &total), cudaSuccess);
  EXPECT_EQ(available, 10000 - kBytes);
}

TEST_F(Memory, MoreThanTheMachineHasIsRefused) {
  void* pointer = nullptr;
  EXPECT_EQ(cudaMalloc(&pointer, ~std::size_t{0}), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&pointer, std::size_t{1} << 50), cudaErrorMemoryAllocation);
}

TEST_F(Memory, ABadSizeOfMemoryIsAnError) {
  const Environment environment("EMULATOR_MEMORY", "1 GB");
  std::size_t available = 0;
  std::size_t total = 0;
  EXPECT_EQ(cudaMemGetInfo(&available, &total), cudaErrorInvalidValue);
  EXPECT_EQ(last_report(), "EMULATOR_MEMORY is '1 GB': a whole number from 1 to 4611686018427387904 expected\n");
}

TEST_F(Memory, OfTheHostComesAndGoes) {
  float* values = nullptr;
  ASSERT_EQ(cudaMallocHost(&values, 100), cudaSuccess);
  values[24] = 1;
  EXPECT_EQ(cudaFreeHost(values), cudaSuccess);
}

}  // namespace
}  // namespace emulator::test
