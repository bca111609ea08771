/// @file
/// Device memory as the host holds it: buffers and workspaces.

#include "common/device/buffer.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/device/workspace.hpp"

namespace tutorial {
namespace {

TEST(DeviceBuffer, KeepsWhatIsUploaded) {
  const std::vector<int> values{3, 1, 4, 1, 5};
  DeviceBuffer<int> buffer(values);
  EXPECT_EQ(buffer.size(), 5u);
  EXPECT_EQ(buffer.bytes(), 20u);
  EXPECT_EQ(buffer.download(), values);
  buffer.upload(std::vector<int>{9, 8});
  EXPECT_EQ(buffer.download(), (std::vector<int>{9, 8, 4, 1, 5}));
  buffer.fill_bytes(0xFF);
  EXPECT_EQ(buffer.download(), std::vector<int>(5, -1));
}

TEST(DeviceBuffer, RefusesMoreThanItHolds) {
  DeviceBuffer<int> buffer(2);
  EXPECT_THROW(buffer.upload(std::vector<int>(3)), std::length_error);
}

TEST(DeviceBuffer, MovesWithoutCopying) {
  DeviceBuffer<int> buffer(std::vector<int>{1, 2});
  const int* address = buffer.data();
  DeviceBuffer<int> other = std::move(buffer);
  EXPECT_EQ(other.data(), address);
  DeviceBuffer<int> third(7);
  third = std::move(other);
  EXPECT_EQ(third.data(), address);
  EXPECT_EQ(third.download(), (std::vector<int>{1, 2}));
}

TEST(DeviceBuffer, MayBeEmpty) {
  DeviceBuffer<float> empty, of_zero(0);
  for (DeviceBuffer<float>* buffer : {&empty, &of_zero}) {
    EXPECT_EQ(buffer->data(), nullptr);
    buffer->fill_bytes(0);
    EXPECT_TRUE(buffer->download().empty());
  }
}

TEST(DeviceBuffer, SaysWhenTheDeviceIsFull) {
  try {
    DeviceBuffer<double> buffer(std::size_t{1} << 50);
    FAIL() << "8 PB fit";
  } catch (const CudaError& error) {
    EXPECT_EQ(error.code(), cudaErrorMemoryAllocation);
    EXPECT_NE(std::string(error.what()).find("buffer_test.cpp"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(DeviceBuffer<double>(1));
}

TEST(DeviceBuffer, RefusesASizeThatOverflows) {
  EXPECT_THROW(DeviceBuffer<double>(~std::size_t{0} / 4), CudaError);
}

TEST(Workspace, BelongsToItsThread) {
  float* own = workspace<float>("buffer_test, threads", 100);
  std::jthread([&] {
    EXPECT_EQ(workspace_size("buffer_test, threads"), 0u);
    EXPECT_NE(workspace<float>("buffer_test, threads", 100), own);
  }).join();
  EXPECT_EQ(workspace<float>("buffer_test, threads", 100), own);
}

TEST(Workspace, GrowsAndKeepsItsPlace) {
  float* first = workspace<float>("buffer_test", 100);
  EXPECT_EQ(workspace<float>("buffer_test", 100), first);
  EXPECT_EQ(workspace<float>("buffer_test", 1), first);
  EXPECT_EQ(static_cast<void*>(workspace<double>("buffer_test", 50)), first);
  EXPECT_NE(workspace<float>("buffer_test, another", 100), first);
  float* grown = workspace<float>("buffer_test", 1000000);
  check(cudaMemset(grown, 0, 4000000));
  EXPECT_EQ(workspace<float>("buffer_test", 100), grown);
}

TEST(Workspace, SurvivesAnAllocationThatFails) {
  EXPECT_THROW(workspace<float>("buffer_test, huge", std::size_t{1} << 50), CudaError);
  check(cudaMemset(workspace<float>("buffer_test, huge", 10), 0, 40));
}

}  // namespace
}  // namespace tutorial
