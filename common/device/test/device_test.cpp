/// @file
/// What a device has, and a device that passes for another one.

#include "common/device/device.hpp"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tutorial {
namespace {

TEST(Device, WhatIsMissingIsNamedBesideWhatIsThere) {
  const auto most = std::size_t(shared_memory_per_block());
  EXPECT_EQ(shared_memory_missing(most), "");
  EXPECT_EQ(shared_memory_missing(most + 1), "a block needs " + std::to_string(most / 1024 + 1) +
                                                 " KB of shared memory, and this GPU has " +
                                                 std::to_string(most / 1024) + " KB");
}

TEST(Device, CapabilitiesHaveAPoint) {
  EXPECT_EQ(capability_text(89), "8.9");
  EXPECT_EQ(capability_text(120), "12.0");
}

#if TUTORIAL_EMULATOR
struct Card {
  const char* name;
  bool has_bulk_copies, has_warpgroup_products;
};

TEST(Device, EachCardHasWhatItsGenerationHas) {
  for (const Card& card : {Card{"a100", false, false},
                           {"rtx3060", false, false},
                           {"rtx4090", false, false},
                           {"h200", true, true},
                           {"b200", true, false},
                           {"rtx5090", true, false}}) {
    SCOPED_TRACE(card.name);
    setenv("EMULATOR_DEVICE", card.name, 1);
    EXPECT_EQ(bulk_copies_missing().empty(), card.has_bulk_copies);
    EXPECT_EQ(warpgroup_products_missing().empty(), card.has_warpgroup_products);
    EXPECT_EQ(has_early_start(), card.has_bulk_copies);
  }
  EXPECT_EQ(warpgroup_products_missing(), "products of warpgroups need compute capability 9.0, and this GPU has 12.0");
  setenv("EMULATOR_DEVICE", "rtx3060", 1);
  EXPECT_EQ(bulk_copies_missing(), "bulk copies need compute capability 9.0 or later, and this GPU has 8.6");
  unsetenv("EMULATOR_DEVICE");
}
#endif

// In a process of its own: the others would see that card, too.
TEST(DeviceDeathTest, PassesForACardThatHasLess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // CUDA does not survive a fork
  if (!warpgroup_products_missing().empty()) GTEST_SKIP() << "a card that lacks nothing is needed";
  const auto check = [](int capability, bool has_bulk_copies, int shared_kb) {
    const bool right = pass_for(capability).empty() && passes_for() == capability &&
                       compute_capability() == capability && bulk_copies_missing().empty() == has_bulk_copies &&
                       warpgroup_products_missing().empty() == (capability == 90) &&
                       shared_memory_per_block() == shared_kb * 1024;
    std::_Exit(right ? 0 : 1);
  };
  EXPECT_EXIT(check(80, false, 163), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(check(86, false, 99), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(check(89, false, 99), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(check(90, true, 227), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(check(100, true, 227), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(check(120, true, 99), testing::ExitedWithCode(0), "");
  EXPECT_NE(pass_for(75), "");
  EXPECT_EQ(passes_for(), 0) << "a card that it cannot pass for changes nothing";
}

#if TUTORIAL_EMULATOR
TEST(Device, DoesNotPassForACardThatHasMore) {
  setenv("EMULATOR_DEVICE", "rtx4090", 1);
  EXPECT_EQ(pass_for(120), "12.0 has bulk copies, which this GPU of 8.9 lacks");
  EXPECT_EQ(pass_for(80), "8.0 has 163 KB of shared memory per block, which this GPU of 8.9 lacks");
  setenv("EMULATOR_DEVICE", "b200", 1);
  EXPECT_EQ(pass_for(90), "9.0 has products of warpgroups, which this GPU of 10.0 lacks");
  unsetenv("EMULATOR_DEVICE");
}
#endif

}  // namespace
}  // namespace tutorial
