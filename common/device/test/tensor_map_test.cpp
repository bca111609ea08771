/// @file
/// Which tensors bulk copies can take.

#include "common/device/tensor_map.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "common/device/buffer.hpp"
#include "common/device/device.hpp"

namespace tutorial {
namespace {

constexpr TensorSizes kSizes{.B = 2, .H = 3, .L = 10, .D = 72};

/// A packed tensor of kSizes that begins `offset` elements behind a multiple of 16 bytes. It is never read.
View<const __nv_bfloat16> packed_view(std::int64_t offset = 0) {
  alignas(16) static const __nv_bfloat16 memory[16] = {};
  return packed(memory + offset, kSizes.H, kSizes.L, kSizes.D);
}

void expect_reason(const View<const __nv_bfloat16>& view, const std::string& reason, int rows = 64) {
  const std::string found = why_not_mapped(view, kSizes, rows);
  EXPECT_NE(found.find(reason), std::string::npos) << found;
  try {
    tile_map(view, kSizes, rows);
    ADD_FAILURE() << reason;
  } catch (const std::invalid_argument& error) {
    EXPECT_EQ(error.what(), found);
  }
}

TEST(TensorMap, SaysWhatItCannotTake) {
  EXPECT_EQ(why_not_mapped(packed_view(), kSizes, 64), "");
  EXPECT_EQ(why_not_mapped(packed_view(8), kSizes, 256), "");
  expect_reason(packed_view(1), "begin at a multiple of 16 bytes");
  expect_reason(packed_view(), "1 to 256 rows, not 0", 0);
  expect_reason(packed_view(), "1 to 256 rows, not 257", 257);

  View<const __nv_bfloat16> view = packed_view();
  view.stride_l = 73;
  expect_reason(view, "multiples of 16 bytes, not 146 bytes");
  view.stride_l = -72;
  expect_reason(view, "positive strides, not -144 bytes");
  view = packed_view();
  view.stride_l = 0;
  expect_reason(view, "positive strides, not 0 bytes");
  view = packed_view();
  view.stride_h = 0;  // heads that share the tensor
  EXPECT_EQ(why_not_mapped(view, kSizes, 64), "");
  view.stride_b = std::int64_t{1} << 39;
  expect_reason(view, "below 2^40 bytes");
}

TEST(TensorMap, OverlooksStridesThatAreNotUsed) {
  View<const __nv_bfloat16> view = packed_view();
  view.stride_b = -1;
  view.stride_h = 0;
  view.stride_l = 3;
  EXPECT_EQ(why_not_mapped(view, {.B = 1, .H = 1, .L = 1, .D = 5}, 64), "");
}

TEST(TensorMap, WantsSizesThatFitIn32Bits) {
  EXPECT_NE(why_not_mapped(packed_view(), {.B = 1, .H = 1, .L = 0, .D = 72}, 64), "");
  EXPECT_NE(why_not_mapped(packed_view(), {.B = 1, .H = 1, .L = 1, .D = (std::int64_t{1} << 32) + 1}, 64), "");
}

TEST(TensorMap, IsMadeForDeviceMemory) {
  if (const std::string reason = bulk_copies_missing(); !reason.empty()) GTEST_SKIP() << reason;
  DeviceBuffer<__nv_bfloat16> memory(2 * 3 * 10 * 72);
  EXPECT_NO_THROW(tile_map(packed(memory.data(), 3, 10, 72), kSizes, 64));
}

}  // namespace
}  // namespace tutorial
