// Several devices: which is the current one, what belongs to it, and who may access whose memory.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/device/error.hpp"
#include "common/device/launch.cuh"
#include "common/device/workspace.hpp"
#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::HasSubstr;

struct Values {
  int count;
  float* data;
};

__global__ void set(float* value, float x) {
  *value = x;
}
__global__ void set_first(Values values, float x) {
  values.data[0] = x;
}

/// The first device is current before and after each test.
class Devices : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    (void)cudaGetLastError();
  }

  static float* allocate(int device) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    float* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, sizeof(float)), cudaSuccess);
    return memory;
  }
};

TEST_F(Devices, AreAsManyAsTheEnvironmentSays) {
  const Environment environment("EMULATOR_DEVICES", "5");
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 5);
  EXPECT_EQ(cudaSetDevice(4), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(5), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 4);
  const Environment bad("EMULATOR_DEVICES", "0");
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInvalidValue);
  EXPECT_EQ(last_report(), "EMULATOR_DEVICES is '0': a whole number from 1 to 64 expected\n");
}

TEST_F(Devices, EachHostThreadHasACurrentOne) {
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  int of_another_thread = -1;
  std::thread([&] { (void)cudaGetDevice(&of_another_thread); }).join();
  EXPECT_EQ(of_another_thread, 0);
}

TEST_F(Devices, EachHasItsOwnMemory) {
  const Environment environment("EMULATOR_MEMORY", "1000000000");
  std::size_t before[2], after[2], total = 0;
  for (const int device : {0, 1}) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudaMemGetInfo(&before[device], &total), cudaSuccess);
  }
  float* memory = allocate(1);
  for (const int device : {0, 1}) {
    ASSERT_EQ(cudaSetDevice(device), cudaSuccess);
    ASSERT_EQ(cudaMemGetInfo(&after[device], &total), cudaSuccess);
  }
  EXPECT_EQ(after[0], before[0]);
  EXPECT_EQ(after[1] + sizeof(float), before[1]);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);  // whichever device is current
}

TEST_F(Devices, CopiesGoFromOneToTheOther) {
  float *first = allocate(0), *second = allocate(1);
  const float x = 3;
  float y = 0;
  EXPECT_EQ(cudaMemcpy(first, &x, sizeof x, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(second, first, sizeof x, cudaMemcpyDeviceToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(&y, second, sizeof x, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(y, 3);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
}

TEST_F(Devices, AKernelGetsNoMemoryOfAnotherWithoutPeerAccess) {
  float *first = allocate(0), *second = allocate(1);
  tutorial::launch(set, {1, 1}, second, 1.0f);  // the second device is the current one
  try {
    tutorial::launch(set, {1, 1}, first, 1.0f);
    FAIL();
  } catch (const tutorial::CudaError& error) {
    EXPECT_EQ(error.code(), cudaErrorLaunchFailure);
    EXPECT_THAT(error.what(), HasSubstr("a kernel on device 1 gets memory of device 0, which it may not access"));
    EXPECT_THAT(error.what(), HasSubstr("common/emulator/test/runtime_devices_test.cu:"));
  }
  EXPECT_THROW(tutorial::launch(set_first, {1, 1}, Values{1, first}, 1.0f), tutorial::CudaError);
  int can_access = -1;
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can_access, 1, 0), cudaSuccess);
  EXPECT_EQ(can_access, 1);
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can_access, 1, 1), cudaSuccess);
  EXPECT_EQ(can_access, 0);
  EXPECT_EQ(cudaDeviceCanAccessPeer(&can_access, 1, 2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(1, 0), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
  tutorial::launch(set_first, {1, 1}, Values{1, first}, 2.0f);
  EXPECT_EQ(*first, 2);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);  // it is allowed in one direction
  EXPECT_THROW(tutorial::launch(set, {1, 1}, second, 1.0f), tutorial::CudaError);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(0), cudaSuccess);
  EXPECT_EQ(cudaDeviceDisablePeerAccess(0), cudaErrorPeerAccessNotEnabled);
  EXPECT_THROW(tutorial::launch(set, {1, 1}, first, 1.0f), tutorial::CudaError);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(second), cudaSuccess);
}

TEST_F(Devices, StreamsAndEventsBelongToOne) {
  cudaStream_t stream = nullptr;
  cudaEvent_t here = nullptr, there = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&here), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(here, stream), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(launch(1, 1, 0, stream, std::source_location::current(), [] {}), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaEventCreate(&there), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(there, stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(there), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream, there), cudaSuccess);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, here, there), cudaErrorInvalidResourceHandle);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_EQ(launch(1, 1, 0, stream, std::source_location::current(), [] {}), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(here), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(there), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

// A stage that runs on both finds memory of its own on each.
TEST_F(Devices, EachHasAWorkspaceOfItsOwn) {
  const Environment environment("EMULATOR_DEVICES", "4");  // the first stays as it is for other tests
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  float* first = tutorial::workspace<float>("devices test", 10);
  ASSERT_EQ(cudaSetDevice(3), cudaSuccess);
  EXPECT_EQ(tutorial::workspace_size("devices test"), 0u);
  float* second = tutorial::workspace<float>("devices test", 10);
  EXPECT_NE(first, second);
  tutorial::launch(set, {1, 1}, second, 1.0f);
  ASSERT_EQ(cudaSetDevice(2), cudaSuccess);
  EXPECT_EQ(tutorial::workspace<float>("devices test", 10), first);
}

}  // namespace
}  // namespace emulator::test
