// The devices that the emulator pretends to have, and the words for errors.

#include <gtest/gtest.h>
#include <emulator/runtime_device.hpp>

#include "runtime_support.hpp"

namespace emulator::test {
namespace {

void kernel() {}

int attribute(cudaDeviceAttr which) {
  int value = -1;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, which, 0), cudaSuccess);
  return value;
}

TEST(Device, IsOneOfComputeCapability9UnlessAnotherIsChosen) {
  int count = 0;
  int device = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(device, 0);
  EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_STREQ(properties.name, "emulator");
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.minor, 0);
  EXPECT_EQ(properties.warpSize, 32);
  EXPECT_EQ(properties.maxThreadsPerBlock, 1024);
  EXPECT_EQ(properties.maxGridSize[1], 65535);
  EXPECT_EQ(properties.sharedMemPerBlockOptin, 227u * 1024);
  EXPECT_GT(properties.totalGlobalMem, 0u);
  EXPECT_EQ(cudaGetDeviceProperties(&properties, 2), cudaErrorInvalidDevice);
  (void)cudaGetLastError();
}

TEST(Device, AttributesAgreeWithProperties) {
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(attribute(cudaDevAttrMaxThreadsPerBlock), properties.maxThreadsPerBlock);
  EXPECT_EQ(attribute(cudaDevAttrWarpSize), properties.warpSize);
  EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), properties.multiProcessorCount);
  EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMajor), properties.major);
  EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin), static_cast<int>(properties.sharedMemPerBlockOptin));
  EXPECT_EQ(attribute(cudaDevAttrMaxThreadsPerMultiProcessor), properties.maxThreadsPerMultiProcessor);
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(9999), 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, -1), cudaErrorInvalidDevice);
  (void)cudaGetLastError();
}

TEST(Device, MultiprocessorCountIsReadAtEachCall) {
  EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), 132);
  for (const char* count : {"1", "80"}) {
    const Environment environment("EMULATOR_MULTIPROCESSORS", count);
    EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), std::stoi(count));
  }
  const Environment environment("EMULATOR_MULTIPROCESSORS", "many");
  int value = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0), cudaErrorInvalidValue);
  EXPECT_EQ(last_report(), "EMULATOR_MULTIPROCESSORS is 'many': a whole number from 1 to 4096 expected\n");
  (void)cudaGetLastError();
}

// The figures that an H200 gives for a kernel of few registers.
TEST(Device, OccupancyByThreadsAndSharedMemory) {
  const struct {
    int threads;
    std::size_t shared_bytes;
    int blocks;
  } cases[] = {
      {1, 0, 32},       {33, 1000, 32}, {64, 40000, 5},    {100, 0, 16},      {256, 0, 8},  {256, 100000, 2},
      {1024, 40000, 2}, {1024, 0, 2},   {1024, 232448, 1}, {1024, 232449, 0}, {1025, 0, 0}, {32, 232448, 1},
  };
  for (const auto& one : cases) {
    int blocks = -1;
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, one.threads, one.shared_bytes),
              cudaSuccess);
    EXPECT_EQ(blocks, one.blocks) << one.threads << " threads, " << one.shared_bytes << " bytes";
  }
  int blocks = -1;
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 0, 0), cudaErrorInvalidValue);
  (void)cudaGetLastError();
}

TEST(Device, FunctionAttributes) {
  cudaFuncAttributes attributes;
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, kernel), cudaSuccess);
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 48 * 1024);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 0), cudaSuccess);
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, kernel), cudaSuccess);
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 0);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, -1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, 50), cudaSuccess);
  (void)cudaGetLastError();
}

TEST(Device, ErrorsHaveNamesAndTexts) {
  EXPECT_STREQ(cudaGetErrorName(cudaSuccess), "cudaSuccess");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorLaunchFailure), "cudaErrorLaunchFailure");
  EXPECT_STREQ(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code");
}

}  // namespace
}  // namespace emulator::test
