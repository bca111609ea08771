#include "common/device/trace_target.hpp"

#include <gtest/gtest.h>

namespace tutorial::trace {
namespace {

// In a cluster, addresses of shared memory have the block's rank from bit 24 on, which is where an event has its kind.
TEST(TraceTarget, PlaceOfABarrierLeavesTheKindAlone) {
  constexpr std::uint32_t kPlace = 227 * 1024 - 8;
  for (std::uint32_t rank = 0; rank < 8; ++rank)
    EXPECT_EQ(Packed::place(rank << 24 | kPlace), kPlace) << "rank " << rank;
}

}  // namespace
}  // namespace tutorial::trace
