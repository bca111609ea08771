// Streams, events, and graphs: what is captured does not run, and runs at each launch of the graph.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::Each;

__global__ void add(int* out, int x) {
  atomicAdd(out, x);
}

class Stream : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreate(&stream_), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&value_, sizeof(int)), cudaSuccess);
    ASSERT_EQ(cudaMemset(value_, 0, sizeof(int)), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaFree(value_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    (void)cudaGetLastError();
  }

  /// A launch of two threads that add x each.
  cudaError_t launch_add(int x, cudaStream_t stream) {
    return launch(1, 2, 0, stream, std::source_location::current(), [value = value_, x] { add(value, x); });
  }
  cudaError_t begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    return cudaStreamBeginCapture(stream_, mode);
  }
  /// Ends a capture whose graph nobody wants.
  cudaError_t end() {
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    if (graph) (void)cudaGraphDestroy(graph);
    return error;
  }
  cudaStreamCaptureStatus status() {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    EXPECT_EQ(cudaStreamIsCapturing(stream_, &status), cudaSuccess);
    return status;
  }

  cudaStream_t stream_ = nullptr;
  int* value_ = nullptr;
};

TEST_F(Stream, RunsWork) {
  EXPECT_EQ(launch_add(1, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(*value_, 2);
}

TEST_F(Stream, AGraphRepeatsLaunchesCopiesAndMemsets) {
  int result = -1;
  int five = 5;
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(status(), cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudaMemcpyAsync(value_, &five, sizeof five, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  for (int x = 1; x < 4; ++x) EXPECT_EQ(launch_add(x, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(&result, value_, sizeof result, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(value_, 1, 1, stream_), cudaSuccess);
  EXPECT_EQ(*value_, 0);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(status(), cudaStreamCaptureStatusNone);
  std::size_t nodes = 0;
  EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &nodes), cudaSuccess);
  EXPECT_EQ(nodes, 6u);

  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(result, -1);
  for (const int start : {5, 100}) {
    five = start;  // read when the graph runs
    EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
    EXPECT_EQ(result, start + 12);
    EXPECT_EQ(*value_ & 0xFF, 1);
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

TEST_F(Stream, ACaptureThatHoldsAGraph) {
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(launch_add(1, stream_), cudaSuccess);
  cudaGraph_t inner = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &inner), cudaSuccess);
  cudaGraphExec_t inner_executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&inner_executable, inner), cudaSuccess);

  ASSERT_EQ(begin(), cudaSuccess);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cudaGraphLaunch(inner_executable, stream_), cudaSuccess);
  cudaGraph_t outer = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &outer), cudaSuccess);
  cudaGraphExec_t outer_executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&outer_executable, outer), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(inner_executable), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(outer_executable, stream_), cudaSuccess);
  EXPECT_EQ(*value_, 6);
  EXPECT_EQ(cudaGraphDestroy(inner), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(outer), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(outer_executable), cudaSuccess);
}

TEST_F(Stream, AnEventBringsAnotherStreamIntoTheCapture) {
  cudaStream_t side = nullptr;
  cudaEvent_t fork = nullptr;
  cudaEvent_t join = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&fork), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&join), cudaSuccess);

  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(fork, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(side, fork), cudaSuccess);
  EXPECT_EQ(launch_add(1, side), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(join, side), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(stream_, join), cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(side, &graph), cudaErrorStreamCaptureUnmatched);
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(*value_, 0);
  EXPECT_EQ(launch_add(10, side), cudaSuccess);  // no longer captured
  EXPECT_EQ(*value_, 20);

  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(*value_, 22);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(fork), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(join), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(side), cudaSuccess);
}

TEST_F(Stream, AFailingKernelFailsTheGraph) {
  ASSERT_EQ(begin(), cudaSuccess);
  const auto half = [] {
    if (threadIdx.x == 0) __syncthreads();
  };
  EXPECT_EQ(launch(1, 2, 0, stream_, std::source_location::current(), half), cudaSuccess);
  EXPECT_EQ(launch_add(1, stream_), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(*value_, 0);
  const Environment environment("EMULATOR_SCHEDULE", "sideways");
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
}

// What a GPU answers to calls during a capture, as an H200 with CUDA 13.0 did; the capture is lost after each of them.
TEST_F(Stream, CallsThatACaptureForbids) {
  int host = 0;
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  struct Case {
    const char* name;
    cudaStreamCaptureMode mode;
    std::function<cudaError_t()> call;
    cudaError_t expected;
  };
  const Case cases[] = {
      {"cudaMalloc", cudaStreamCaptureModeGlobal,
       [&] {
         void* p = nullptr;
         return cudaMalloc(&p, 4);
       },
       cudaErrorStreamCaptureUnsupported},
      {"cudaFree", cudaStreamCaptureModeThreadLocal, [&] { return cudaFree(value_); },
       cudaErrorStreamCaptureUnsupported},
      {"device synchronise", cudaStreamCaptureModeRelaxed, [&] { return cudaDeviceSynchronize(); },
       cudaErrorStreamCaptureUnsupported},
      {"stream synchronise", cudaStreamCaptureModeRelaxed, [&] { return cudaStreamSynchronize(stream_); },
       cudaErrorStreamCaptureUnsupported},
      {"stream query", cudaStreamCaptureModeGlobal, [&] { return cudaStreamQuery(stream_); },
       cudaErrorStreamCaptureUnsupported},
      {"copy", cudaStreamCaptureModeRelaxed,
       [&] { return cudaMemcpy(value_, &host, sizeof host, cudaMemcpyHostToDevice); }, cudaErrorStreamCaptureImplicit},
      {"default stream", cudaStreamCaptureModeGlobal, [&] { return launch_add(1, nullptr); },
       cudaErrorStreamCaptureImplicit},
      {"captured event", cudaStreamCaptureModeGlobal,
       [&] { return cudaEventRecord(event, stream_), cudaEventSynchronize(event); }, cudaErrorCapturedEvent},
      {"bad launch", cudaStreamCaptureModeGlobal,
       [&] { return launch(0, 1, 0, stream_, std::source_location::current(), [] {}); }, cudaErrorInvalidValue},
  };
  for (const Case& one : cases) {
    ASSERT_EQ(begin(one.mode), cudaSuccess);
    EXPECT_EQ(one.call(), one.expected) << one.name;
    EXPECT_EQ(status(), cudaStreamCaptureStatusInvalidated) << one.name;
    EXPECT_EQ(launch_add(1, stream_), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated) << one.name;
    EXPECT_EQ(launch_add(1, stream_), cudaSuccess);
  }
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(Stream, CallsThatACaptureAllows) {
  void* pointer = nullptr;
  ASSERT_EQ(begin(cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&pointer, 4), cudaSuccess);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaFree(pointer), cudaSuccess);

  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreate(&other), cudaSuccess);
  ASSERT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(launch_add(1, other), cudaSuccess);
  EXPECT_EQ(*value_, 2);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);

  cudaStream_t independent = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&independent, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(independent, cudaStreamCaptureModeGlobal), cudaSuccess);
  EXPECT_EQ(launch_add(1, nullptr), cudaSuccess);
  EXPECT_EQ(*value_, 4);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(independent, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(independent), cudaSuccess);
}

TEST_F(Stream, CapturesBeginAndEndInPairs) {
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(end(), cudaErrorIllegalState);
  EXPECT_EQ(begin(), cudaSuccess);
  EXPECT_EQ(begin(), cudaErrorIllegalState);
  EXPECT_EQ(end(), cudaSuccess);
  EXPECT_EQ(end(), cudaErrorIllegalState);
}

TEST_F(Stream, EventsMeasureTime) {
  cudaEvent_t start = nullptr;
  cudaEvent_t stop = nullptr;
  cudaEvent_t untimed = nullptr;
  ASSERT_EQ(cudaEventCreate(&start), cudaSuccess);
  ASSERT_EQ(cudaEventCreate(&stop), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, stop), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(start, stream_), cudaSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(cudaEventRecord(stop, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(untimed), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(stop), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(stop), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, stop), cudaSuccess);
  EXPECT_GE(milliseconds, 5.0f);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {start, stop, untimed}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(Stream, NullHandlesAreRefused) {
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaEventDestroy(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGraphInstantiate(&executable, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphLaunch(nullptr, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphDestroy(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(nullptr), cudaErrorInvalidValue);
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, 7), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace emulator::test
