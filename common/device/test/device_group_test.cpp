/// @file
/// Which devices may work together, and how long their work is waited for. (Transfers are tested where stages use them:
/// 06_scan/test/over_devices_test.cpp.)

#include "common/device/device_group.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutorial {
namespace {

TEST(DeviceGroupTest, DevicesMustBeAlikeAndReachEachOther) {
  const DeviceKind fast{"fast", 90, 132}, slow{"slow", 90, 78};
  const auto all = [](int, int) { return true; };
  EXPECT_EQ(group_unsupported({fast, fast, fast}, all), "");
  EXPECT_EQ(group_unsupported({fast, fast, slow}, all),
            "device 2 (slow) is of another kind than device 0 (fast): equal shares would wait for the slowest");
  EXPECT_EQ(group_unsupported({fast, fast}, [](int first, int) { return first == 0; }),
            "device 1 has no access to the memory of device 0");
}

TEST(DeviceGroupTest, WaitingEnds) {
  int asked = 0;
  EXPECT_EQ(wait_for({.has_finished = [&] { return ++asked == 3; }, .error = [] { return ""; }}, 60), "");
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(wait_for({.has_finished = [] { return false; }, .error = [] { return "lost"; }}, 60), "lost");
  EXPECT_NE(
      wait_for({.has_finished = [] { return false; }, .error = [] { return ""; }}, 0.01).find("have not ended in time"),
      std::string::npos);
}

}  // namespace
}  // namespace tutorial
