/// @file
/// device_group.cpp as a build without NCCL has it: stages over several devices are skipped and say why.

#include <gtest/gtest.h>

#include <stdexcept>

#include "common/device/device_group.hpp"

namespace tutorial {
namespace {

TEST(NoNcclTest, SaysWhatIsMissing) {
  for (const int N : {1, 2}) EXPECT_EQ(group_unsupported(N), "this build has no NCCL (its package is libnccl-dev)");
}

TEST(NoNcclTest, HasNoGroup) {
  EXPECT_THROW(DeviceGroup::of(1), std::logic_error);
}

}  // namespace
}  // namespace tutorial
