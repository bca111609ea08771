/// @file
/// Launches: what the kernel gets, and what the caller hears when it does not work.

#include "common/device/launch.cuh"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/error.hpp"
#include "common/device/memory.cuh"

namespace tutorial {
namespace {

struct Pair {
  int first;
  double second;
};

__global__ void keep_arguments(double* out, double real, int integer, Pair pair, const float* pointer) {
  out[0] = real;
  out[1] = integer;
  out[2] = pair.first + pair.second;
  out[3] = pointer == nullptr;
}

TEST(Launch, ConvertsArgumentsToTheParametersTypes) {
  DeviceBuffer<double> out(4);
  const std::int64_t integer = 7;
  launch(keep_arguments, {1, 1}, out.data(), 3, integer, Pair{1, 0.5}, nullptr);
  EXPECT_EQ(out.download(), (std::vector<double>{3, 7, 1.5, 1}));
}

__global__ void count_threads(int* blocks_threads) {
  atomicAdd(&blocks_threads[0], threadIdx.x + threadIdx.y + threadIdx.z == 0);
  atomicAdd(&blocks_threads[1], 1);
  // Every index is within its bounds, or the sum goes astray.
  if (threadIdx.x >= blockDim.x || threadIdx.y >= blockDim.y || threadIdx.z >= blockDim.z)
    atomicAdd(blocks_threads, 99);
  if (blockIdx.x >= gridDim.x || blockIdx.y >= gridDim.y || blockIdx.z >= gridDim.z) atomicAdd(blocks_threads, 99);
}

TEST(Launch, StartsAllThreadsOfAllBlocks) {
  using Sizes = std::pair<dim3, dim3>;
  for (const auto& [grid, block] :
       {Sizes{{1}, {1}}, Sizes{{5, 3, 2}, {3, 5, 7}}, Sizes{{2}, {1024}}, Sizes{{2, 1, 4}, {1, 1, 64}}}) {
    DeviceBuffer<int> counts(std::vector<int>{0, 0});
    launch(count_threads, {grid, block}, counts.data());
    const int blocks = static_cast<int>(grid.x * grid.y * grid.z);
    EXPECT_EQ(counts.download(), (std::vector<int>{blocks, blocks * static_cast<int>(block.x * block.y * block.z)}));
  }
}

__global__ void do_nothing() {}

TEST(Launch, IsCountedWhereItWasNotRefused) {
  const std::int64_t before = launch_count();
  launch(do_nothing, {1, 1});
  launch(do_nothing, {2, 32});
  EXPECT_EQ(launch_count() - before, 2);
  EXPECT_THROW(launch(do_nothing, {1, 4096}), CudaError);
  EXPECT_EQ(launch_count() - before, 2);
}

TEST(Launch, TakesNoArgumentsToo) {
  launch(do_nothing, {1, 32});
}

/// Writes all of the dynamic shared memory and adds it up again.
__global__ void sum_shared(float* sum, int count) {
  float* shared = dynamic_shared<float>();
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) shared[i] = 1;
  __syncthreads();
  if (threadIdx.x > 0) return;
  float total = 0;
  for (int i = 0; i < count; ++i) total += shared[i];
  *sum = total;
}

TEST(Launch, RaisesTheLimitOfDynamicSharedMemory) {
  for (const int kilobytes : {1, 48, 64, 99}) {  // every GPU of compute capability 8.x has 99
    DeviceBuffer<float> sum(1);
    const int count = kilobytes * 256;
    launch(sum_shared, {1, 128, count * sizeof(float)}, sum.data(), count);
    EXPECT_EQ(sum.download()[0], static_cast<float>(count));
  }
}

/// The error that `action` must end with.
template <class Action>
CudaError error_of(Action action) {
  try {
    action();
  } catch (const CudaError& error) {
    return error;
  }
  throw std::logic_error("there was no error");
}

bool contains(const CudaError& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

/// By CUDA's manual it is an invalid configuration; CUDA 13.0 calls it an invalid value.
bool is_refusal(const CudaError& error) {
  return error.code() == cudaErrorInvalidValue || error.code() == cudaErrorInvalidConfiguration;
}

TEST(Launch, RefusesWhatNoGpuCanRun) {
  EXPECT_TRUE(is_refusal(error_of([] { launch(do_nothing, {1, 1025}); })));
  EXPECT_TRUE(is_refusal(error_of([] { launch(do_nothing, {1, {1, 1, 65}}); })));
  EXPECT_TRUE(is_refusal(error_of([] { launch(do_nothing, {0, 32}); })));
  EXPECT_TRUE(is_refusal(error_of([] { launch(do_nothing, {{1, 70000}, 32}); })));
  EXPECT_TRUE(is_refusal(error_of([] { launch(do_nothing, {1, 0}); })));
  EXPECT_TRUE(is_refusal(error_of([] { launch(do_nothing, {1, 32, 300 << 10}); })));
}

TEST(Launch, SaysWhatWasRefusedAndWhere) {
  const unsigned line = __LINE__ + 1;
  const CudaError error = error_of([] { launch(do_nothing, {3, 2000}); });
  EXPECT_TRUE(contains(error, "launch_test.cu:" + std::to_string(line))) << error.what();
  EXPECT_TRUE(contains(error, "3 x 1 x 1 blocks")) << error.what();
  EXPECT_TRUE(contains(error, "2000 x 1 x 1 threads")) << error.what();
  EXPECT_TRUE(contains(error, cudaGetErrorName(error.code()))) << error.what();
}

TEST(Launch, WorksAfterAnError) {
  EXPECT_THROW(launch(do_nothing, {1, 2000}), CudaError);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  launch(do_nothing, {1, 32});
  check(cudaDeviceSynchronize());
}

TEST(Check, NamesTheCall) {
  const unsigned line = __LINE__ + 1;
  const CudaError error = error_of([] { check(cudaErrorMemoryAllocation); });
  EXPECT_EQ(error.code(), cudaErrorMemoryAllocation);
  EXPECT_TRUE(contains(error, "launch_test.cu:" + std::to_string(line))) << error.what();
  EXPECT_TRUE(contains(error, "out of memory")) << error.what();
  EXPECT_NO_THROW(check(cudaSuccess));
}

__global__ void add_one(int* value) {
  ++*value;
}

TEST(Launch, GoesToTheCurrentStream) {
  DeviceBuffer<int> value(std::vector<int>{0});
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  set_current_stream(stream);
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch(add_one, {1, 1}, value.data());
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  EXPECT_EQ(value.download()[0], 0);  // recorded, not run
  for (int i = 0; i < 3; ++i) check(cudaGraphLaunch(executable, stream));
  EXPECT_EQ(value.download()[0], 3);
  check(cudaGraphExecDestroy(executable));
  check(cudaGraphDestroy(graph));
  set_current_stream(nullptr);
  check(cudaStreamDestroy(stream));
}

#if TUTORIAL_EMULATOR

__global__ void get_stuck() {
  if (threadIdx.x < 5) __syncthreads();
}

TEST(EmulatedLaunch, ReportsABarrierThatSomeThreadsNeverReach) {
  const CudaError error = error_of([] { launch(get_stuck, {1, 32}); });
  EXPECT_EQ(error.code(), cudaErrorLaunchFailure);
  EXPECT_TRUE(contains(error, "stuck")) << error.what();
  EXPECT_TRUE(contains(error, "get_stuck")) << error.what();
}

__global__ void read_misaligned(const float* in, float* out) {
  const auto* vector = reinterpret_cast<const float4*>(in + 1);
  store_global(out, load_global(vector).x);
}

TEST(EmulatedLaunch, ReportsAMisalignedAddress) {
  DeviceBuffer<float> buffer(8);
  const CudaError error = error_of([&] { launch(read_misaligned, {1, 1}, buffer.data(), buffer.data()); });
  EXPECT_EQ(error.code(), cudaErrorLaunchFailure);
  EXPECT_TRUE(contains(error, "misaligned address")) << error.what();
  EXPECT_TRUE(contains(error, "read_misaligned")) << error.what();
}

#endif

}  // namespace
}  // namespace tutorial
