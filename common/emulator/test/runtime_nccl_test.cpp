// The stand-in for NCCL: what arrives where, and what is wrong use.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <emulator/link_bytes.hpp>

#include <string>
#include <utility>
#include <vector>

#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::HasSubstr;

/// Three devices, each with a stream and memory for kCount numbers of each device; its own are 10 rank, 10 rank + 1,
/// ...
class Nccl : public testing::Test {
 protected:
  static constexpr int kDevices = 3, kCount = 4;
  static constexpr std::size_t kBytes = kCount * sizeof(float);

  void SetUp() override {
    ASSERT_EQ(ncclCommInitAll(communicators_, kDevices, nullptr), ncclSuccess);
    for (int rank = 0; rank < kDevices; ++rank) {
      ASSERT_EQ(cudaSetDevice(rank), cudaSuccess);
      ASSERT_EQ(cudaStreamCreate(&streams_[rank]), cudaSuccess);
      ASSERT_EQ(cudaMalloc(&own_[rank], kBytes), cudaSuccess);
      ASSERT_EQ(cudaMalloc(&all_[rank], kDevices * kBytes), cudaSuccess);
      for (int i = 0; i < kCount; ++i) own_[rank][i] = float(10 * rank + i);
    }
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  void TearDown() override {
    for (int rank = 0; rank < kDevices; ++rank) {
      if (communicators_[rank]) {
        EXPECT_EQ(ncclCommDestroy(communicators_[rank]), ncclSuccess);
      }
      EXPECT_EQ(cudaStreamDestroy(streams_[rank]), cudaSuccess);
      EXPECT_EQ(cudaFree(own_[rank]), cudaSuccess);
      EXPECT_EQ(cudaFree(all_[rank]), cudaSuccess);
    }
  }

  ncclResult_t gather(int rank, std::size_t count = kCount, ncclDataType_t type = ncclFloat32) {
    return ncclAllGather(own_[rank], all_[rank], count, type, communicators_[rank], streams_[rank]);
  }
  ncclResult_t send(int rank, int peer, std::size_t count = kCount) {
    return ncclSend(own_[rank], count, ncclFloat32, peer, communicators_[rank], streams_[rank]);
  }
  ncclResult_t receive(int rank, int peer) {
    return ncclRecv(all_[rank], kCount, ncclFloat32, peer, communicators_[rank], streams_[rank]);
  }

  const Environment environment_{"EMULATOR_DEVICES", "3"};
  ncclComm_t communicators_[kDevices] = {};
  cudaStream_t streams_[kDevices] = {};
  float *own_[kDevices] = {}, *all_[kDevices] = {};
};

TEST_F(Nccl, AnAllGatherBringsEverythingToAll) {
  const std::uint64_t before = link_bytes();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (const int rank : {2, 0, 1}) EXPECT_EQ(gather(rank), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  for (const float* all : all_) {
    for (int i = 0; i < kDevices * kCount; ++i) EXPECT_EQ(all[i], float(i / kCount * 10 + i % kCount));
  }
  EXPECT_EQ(link_bytes() - before, kDevices * (kDevices - 1) * kBytes);
}

TEST_F(Nccl, TransfersOfAPairKeepTheirOrder) {
  const std::uint64_t before = link_bytes();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(send(0, 2), ncclSuccess);
  EXPECT_EQ(ncclSend(own_[0] + 1, 2, ncclFloat32, 2, communicators_[0], streams_[0]), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(receive(2, 0), ncclSuccess);
  EXPECT_EQ(ncclRecv(all_[2] + kCount, 2, ncclFloat32, 0, communicators_[2], streams_[2]), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(std::vector<float>(all_[2], all_[2] + 6), (std::vector<float>{0, 1, 2, 3, 1, 2}));
  EXPECT_EQ(link_bytes() - before, 6 * sizeof(float));
}

TEST_F(Nccl, WhatHasNoCounterpartIsReported) {
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(gather(0), ncclSuccess);
  EXPECT_EQ(gather(1), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(last_report(), "ncclAllGather of rank 0 of 3 waits for others that are not in its group\n");
  EXPECT_EQ(send(1, 2), ncclInvalidUsage);  // outside of a group
  EXPECT_EQ(last_report(), "ncclSend of rank 1 of 3 waits for rank 2, which is not in its group\n");
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_EQ(last_report(), "ncclGroupEnd without ncclGroupStart\n");
}

TEST_F(Nccl, CounterpartsThatDifferAreReported) {
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(send(0, 1, 3), ncclSuccess);
  EXPECT_EQ(receive(1, 0), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_THAT(last_report(), HasSubstr("differ in their counts or types"));
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < kDevices; ++rank) EXPECT_EQ(gather(rank, rank == 1 ? 3 : 4), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

TEST_F(Nccl, StreamsBuffersAndRanksMustBeTheDevices) {
  const auto wrong = [&](ncclResult_t result, const char* report) {
    EXPECT_EQ(result, ncclInvalidArgument);
    EXPECT_THAT(last_report(), HasSubstr(report));
  };
  const float host = 0;
  wrong(ncclSend(own_[0], kCount, ncclFloat32, 1, communicators_[0], streams_[1]),
        "on a stream of device 1, not of device 0");
  wrong(ncclSend(own_[1], kCount, ncclFloat32, 1, communicators_[0], streams_[0]),
        "reads what is not memory of device 0");
  wrong(ncclSend(&host, 1, ncclFloat32, 1, communicators_[0], streams_[0]), "reads what is not memory of device 0");
  wrong(ncclSend(own_[0], kCount + 1, ncclFloat32, 1, communicators_[0], streams_[0]), "reads what is not memory");
  wrong(ncclRecv(own_[0], kCount, ncclFloat64, 1, communicators_[0], streams_[0]), "writes to what is not memory");
  wrong(ncclAllGather(own_[0], own_[0], kCount, ncclFloat32, communicators_[0], streams_[0]), "writes to what is not");
  wrong(send(0, 0), "with rank 0");
  wrong(send(0, 3), "with rank 3");
  wrong(ncclSend(own_[0], 1, ncclFloat32, 1, nullptr, streams_[0]), "a communicator that is not there");
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(send(0, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);  // the group has failed with it
}

TEST_F(Nccl, CommunicatorsAreOfDifferentDevices) {
  ncclComm_t some[4];
  EXPECT_EQ(ncclCommInitAll(some, 4, nullptr), ncclInvalidArgument);
  EXPECT_EQ(last_report(), "ncclCommInitAll for device 3 of 3\n");
  const int twice[] = {1, 1};
  EXPECT_EQ(ncclCommInitAll(some, 2, twice), ncclInvalidUsage);
  EXPECT_EQ(ncclCommInitAll(some, 0, nullptr), ncclInvalidArgument);
  const int backwards[] = {2, 0};
  ASSERT_EQ(ncclCommInitAll(some, 2, backwards), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(own_[2], 1, ncclFloat32, 1, some[0], streams_[2]), ncclSuccess);
  EXPECT_EQ(ncclRecv(all_[0], 1, ncclFloat32, 0, some[1], streams_[0]), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(all_[0][0], 20);
  EXPECT_EQ(ncclCommDestroy(some[0]), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(some[1]), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(some[1]), ncclInvalidArgument);
}

TEST_F(Nccl, AGroupFailsLaterWhereThatIsAskedFor) {
  const Environment environment("EMULATOR_NCCL_FAULT", "error:2");
  const auto exchange = [&] {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (int rank = 0; rank < kDevices; ++rank) (void)gather(rank);
    return ncclGroupEnd();
  };
  for (const ncclResult_t expected : {ncclSuccess, ncclRemoteError}) {
    all_[1][0] = -1;
    EXPECT_EQ(exchange(), ncclSuccess);
    ncclResult_t error = ncclInProgress;
    EXPECT_EQ(ncclCommGetAsyncError(communicators_[1], &error), ncclSuccess);
    EXPECT_EQ(error, expected);
    EXPECT_EQ(all_[1][0], expected == ncclSuccess ? 0 : -1);
  }
  EXPECT_EQ(exchange(), ncclRemoteError);
}

TEST_F(Nccl, AGroupHangsUntilItIsAbortedWhereThatIsAskedFor) {
  const Environment environment("EMULATOR_NCCL_FAULT", "hang:1");
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(send(0, 1), ncclSuccess);
  EXPECT_EQ(receive(1, 0), ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  EXPECT_EQ(cudaStreamQuery(streams_[0]), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(streams_[1]), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(streams_[2]), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(streams_[1]), cudaErrorLaunchFailure);
  EXPECT_THAT(last_report(), HasSubstr("a GPU would hang here"));
  for (const int rank : {0, 1}) {
    EXPECT_EQ(ncclCommAbort(std::exchange(communicators_[rank], nullptr)), ncclSuccess);
    EXPECT_EQ(cudaStreamQuery(streams_[rank]), cudaSuccess);
  }
  (void)cudaGetLastError();
}

TEST_F(Nccl, AFaultThatMakesNoSenseIsReported) {
  for (const char* text : {"error", "error:", "hang:0", "hang:1x", "block:-1", "stop:1", ""}) {
    const Environment environment("EMULATOR_NCCL_FAULT", text);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(send(0, 1), ncclSuccess);
    EXPECT_EQ(receive(1, 0), ncclSuccess);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    EXPECT_EQ(last_report(),
              "EMULATOR_NCCL_FAULT is '" + std::string(text) + "': error:GROUP, hang:GROUP or block:GROUP expected\n");
  }
}

}  // namespace
}  // namespace emulator::test
