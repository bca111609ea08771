// The cards that EMULATOR_DEVICE chooses from, and what a kernel meets on a card that lacks its instructions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <emulator/runtime_device.hpp>

#include <cstdint>
#include <string>

#include "common/device/bulk_copy.cuh"
#include "common/device/cluster.cuh"
#include "common/device/elect.cuh"
#include "common/device/mbarrier.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"
#include "common/device/registers.cuh"
#include "common/device/stmatrix.cuh"
#include "common/device/wgmma.cuh"
#include "runtime_support.hpp"

namespace emulator::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

int attribute(cudaDeviceAttr which) {
  int value = -1;
  EXPECT_EQ(cudaDeviceGetAttribute(&value, which, 0), cudaSuccess) << last_report();
  return value;
}

struct Card {
  const char* name;
  int major, minor, multiprocessors, shared_per_block_kb, shared_per_multiprocessor_kb, l2_mb, threads, blocks;
};

// Typed again from NVIDIA's tables, so that a slip of the pen in one of both shows.
TEST(DeviceModel, CardsAreThoseOfTheTables) {
  for (const Card& card : {Card{"a100", 8, 0, 108, 163, 164, 40, 2048, 32},
                           {"rtx3060", 8, 6, 28, 99, 100, 3, 1536, 16},
                           {"rtx4090", 8, 9, 128, 99, 100, 72, 1536, 24},
                           {"h200", 9, 0, 132, 227, 228, 60, 2048, 32},
                           {"b200", 10, 0, 148, 227, 228, 126, 2048, 32},
                           {"rtx5090", 12, 0, 170, 99, 100, 96, 1536, 24}}) {
    SCOPED_TRACE(card.name);
    const Environment environment("EMULATOR_DEVICE", card.name);
    EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMajor), card.major);
    EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMinor), card.minor);
    EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), card.multiprocessors);
    EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin), card.shared_per_block_kb * 1024);
    EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor), card.shared_per_multiprocessor_kb * 1024);
    EXPECT_EQ(attribute(cudaDevAttrL2CacheSize), card.l2_mb << 20);
    EXPECT_EQ(attribute(cudaDevAttrMaxThreadsPerMultiProcessor), card.threads);
    EXPECT_EQ(attribute(cudaDevAttrMaxBlocksPerMultiprocessor), card.blocks);
    cudaDeviceProp properties;
    ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    EXPECT_EQ(properties.major * 10 + properties.minor, card.major * 10 + card.minor);
    EXPECT_EQ(properties.sharedMemPerBlockOptin, std::size_t(card.shared_per_block_kb) * 1024);
  }
}

TEST(DeviceModel, TheNameTellsTheCard) {
  cudaDeviceProp properties;
  const Environment environment("EMULATOR_DEVICE", "rtx4090");
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_STREQ(properties.name, "emulator as GeForce RTX 4090");
}

TEST(DeviceModel, SinglePropertiesCanBeSet) {
  const Environment environment("EMULATOR_DEVICE",
                                "rtx5090,multiprocessors=3,shared_per_block_kb=64,l2_mb=7,compute_capability=8.6");
  EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), 3);
  EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin), 64 * 1024);
  EXPECT_EQ(attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor), 100 * 1024);
  EXPECT_EQ(attribute(cudaDevAttrL2CacheSize), 7 << 20);
  EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMinor), 6);
  const Environment count("EMULATOR_MULTIPROCESSORS", "5");
  EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), 5) << "the older variable decides";
}

TEST(DeviceModel, PropertiesAloneChangeTheDefault) {
  const Environment environment("EMULATOR_DEVICE", "multiprocessors=4");
  EXPECT_EQ(attribute(cudaDevAttrMultiProcessorCount), 4);
  EXPECT_EQ(attribute(cudaDevAttrComputeCapabilityMajor), 9);
}

TEST(DeviceModel, BadSettingsGetALine) {
  const std::pair<const char*, const char*> cases[] = {
      {"rtx9999", "'rtx9999': neither PROPERTY=VALUE nor one of a100, rtx3060, rtx4090, h100, h200, b200, rtx5090"},
      {"", "'': neither PROPERTY=VALUE nor one of"},
      {"a100,", "'': the name of a card stands first"},
      {"multiprocessors=2,a100", "'a100': the name of a card stands first"},
      {"a100,sms=2", "'sms=2': the properties are compute_capability, multiprocessors,"},
      {"multiprocessors=0", "'multiprocessors=0': a whole number from 1 to 4096 expected"},
      {"l2_mb=x", "'l2_mb=x': a whole number from 1 to 1024 expected"},
      {"compute_capability=89", "'compute_capability=89': a compute capability such as 8.9 expected"},
      {"compute_capability=.9", "'compute_capability=.9': a whole number"},
      {"shared_per_block_kb=228", "a block's shared memory is at least 48 KB, and at least 1 KB less"},
      {"shared_per_block_kb=47", "a block's shared memory is at least 48 KB"},
  };
  for (const auto& [setting, line] : cases) {
    SCOPED_TRACE(setting);
    const Environment environment("EMULATOR_DEVICE", setting);
    int value = 0;
    EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0), cudaErrorInvalidValue);
    EXPECT_THAT(last_report(), AllOf(HasSubstr("EMULATOR_DEVICE"), HasSubstr(line)));
    EXPECT_EQ(run(1, 1, 0, [] {}), cudaErrorInvalidValue) << "a launch asks, too";
    (void)cudaGetLastError();
  }
}

TEST(DeviceModel, SharedMemoryIsThatOfTheCard) {
  const Environment environment("EMULATOR_DEVICE", "rtx4090");
  EXPECT_EQ(run(1, 1, 99 * 1024, [] {}), cudaSuccess);
  EXPECT_EQ(run(1, 1, 99 * 1024 + 1, [] {}), cudaErrorInvalidValue);
  EXPECT_EQ(last_report(),
            "a block of this launch asks for 101377 bytes of dynamic shared memory, and the device of "
            "EMULATOR_DEVICE has 101376 for one\n");
  (void)cudaGetLastError();
  int blocks = 0;
  const auto kernel = [] {};
  EXPECT_EQ(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, reinterpret_cast<const void*>(&kernel), 128, 48 << 10),
      cudaSuccess);
  EXPECT_EQ(blocks, 2) << "of 49 KB with what the system takes";
}

// A limit that was raised on one card is not that of the next.
TEST(DeviceModel, ARaisedLimitEndsWithTheCard) {
  static int kernel = 0;  // its address stands for a kernel
  ASSERT_EQ(cudaFuncSetAttribute(&kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10), cudaSuccess);
  const Environment environment("EMULATOR_DEVICE", "rtx4090");
  EXPECT_EQ(cudaFuncSetAttribute(&kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10),
            cudaErrorInvalidValue);
  EXPECT_EQ(launch(
                1, 1, 150 << 10, nullptr, std::source_location::current(), [] {}, &kernel),
            cudaErrorInvalidValue);
  (void)cudaGetLastError();
}

// --- instructions ---

struct Instruction {
  const char* name;  // in the report
  bool needs_hopper;
  void (*kernel)();
};

void use_mbarrier() {
  auto* barrier = tutorial::dynamic_shared<tutorial::Barrier>();
  if (threadIdx.x == 0) barrier->init(1);
}

void use_wgmma() {
  float sums[32] = {};
  tutorial::wgmma_fence(sums);
}

void use_stmatrix() {
  auto* memory = tutorial::dynamic_shared<unsigned char, 1024>();
  const std::uint32_t fragment[1] = {0};
  if (threadIdx.x >= 32) return;  // one warp: others would write the same rows
  tutorial::stmatrix(memory + threadIdx.x % 8 * 16, fragment);
}

void use_cluster() {
  tutorial::cluster_sync();
}

// The map of a tensor without positions: nothing is read or written.
tutorial::TensorMap empty_map() {
  return {{.base = nullptr, .sizes = {64, 0, 1, 1}, .strides = {128, 128, 128}, .rows = 8}};
}

void use_bulk_store() {
  auto* tile = tutorial::dynamic_shared<unsigned char, 1024>();
  if (threadIdx.x > 0) return;
  tutorial::store_tile(empty_map(), tile, {});
  tutorial::commit_stores();
  tutorial::wait_stores<0>();
}

const Instruction kInstructions[] = {
    {"cp.async.bulk", false, use_bulk_store},
    {"%cluster_ctarank", false, [] { (void)tutorial::cluster_rank(); }},
    {"%cluster_nctarank", false, [] { (void)tutorial::cluster_size(); }},
    {"mbarrier", false, use_mbarrier},
    {"fence.proxy.async", false, [] { tutorial::fence_async_proxy(); }},
    {"barrier.cluster", false, use_cluster},
    {"stmatrix", false, use_stmatrix},
    {"elect", false, [] { (void)tutorial::elect_one(); }},
    {"wgmma", true, use_wgmma},
    {"setmaxnreg", true, [] { tutorial::decrease_registers<40>(); }},
};

cudaError_t run_on(const char* card, const Instruction& instruction) {
  const Environment environment("EMULATOR_DEVICE", card);
  const cudaError_t error = run(1, 128, 4096, instruction.kernel);
  (void)cudaGetLastError();
  return error;
}

TEST(DeviceModel, AnInstructionThatTheCardLacksEndsTheLaunchWithItsLine) {
  for (const Instruction& instruction : kInstructions) {
    SCOPED_TRACE(instruction.name);
    EXPECT_EQ(run_on("rtx4090", instruction), cudaErrorLaunchFailure);
    const std::string needed =
        instruction.needs_hopper ? " needs compute capability 9.0, and" : " needs compute capability 9.0 or later, and";
    EXPECT_THAT(last_report(), AllOf(HasSubstr(instruction.name + needed + " the device of EMULATOR_DEVICE has 8.9"),
                                     HasSubstr("runtime_device_model_test.cu:")));
    EXPECT_EQ(run_on("h200", instruction), cudaSuccess) << last_report();
    for (const char* later : {"b200", "rtx5090"}) {
      EXPECT_EQ(run_on(later, instruction), instruction.needs_hopper ? cudaErrorLaunchFailure : cudaSuccess) << later;
    }
  }
}

// Its barrier, which comes first, is there on these cards.
TEST(DeviceModel, MulticastIsHoppers) {
  const Instruction multicast{"cp.async.bulk with .multicast::cluster", true, [] {
                                auto* memory = tutorial::dynamic_shared<unsigned char, 1024>();
                                if (threadIdx.x > 0) return;
                                auto& full = *reinterpret_cast<tutorial::Barrier*>(memory + 2048);
                                full.init(1);
                                tutorial::fence_barrier_init();
                                full.arrive_expect(1024);
                                tutorial::load_tile_multicast(empty_map(), memory, full, {}, 0b1);
                                full.wait(0);
                              }};
  EXPECT_EQ(run_on("h200", multicast), cudaSuccess) << last_report();
  EXPECT_EQ(run_on("rtx5090", multicast), cudaErrorLaunchFailure);
  EXPECT_THAT(last_report(), HasSubstr(".multicast::cluster needs compute capability 9.0, and the device of "));
}

TEST(DeviceModel, ClustersAreRefusedBeforeHopper) {
  const auto launch_cluster = [] {
    const cudaError_t error = launch(
        2, 32, 0, nullptr, std::source_location::current(), [] { tutorial::cluster_sync(); }, nullptr, 2);
    (void)cudaGetLastError();
    return error;
  };
  EXPECT_EQ(launch_cluster(), cudaSuccess);
  const Environment environment("EMULATOR_DEVICE", "a100");
  EXPECT_EQ(launch_cluster(), cudaErrorNotSupported);
  EXPECT_EQ(last_report(),
            "clusters need compute capability 9.0 or later, and the device of EMULATOR_DEVICE has 8.0\n");
}

}  // namespace
}  // namespace emulator::test
