/// @file
/// device_group.cpp as a build without NCCL has it: stages over several devices are skipped and say why.

#include <gtest/gtest.h>

#include <stdexcept>

#include "06_scan/over_devices/device_group.hpp"

namespace tutorial::over_devices {
namespace {

TEST(NoNcclTest, SaysWhatIsMissing) {
  for (const int N : {1, 2}) EXPECT_EQ(why_not(N), "this build has no NCCL (its package is libnccl-dev)");
}

TEST(NoNcclTest, HasNoGroup) {
  EXPECT_THROW(DeviceGroup::of(1), std::logic_error);
}

}  // namespace
}  // namespace tutorial::over_devices
