/// @file
/// The swizzle: where units lie, and that steps from unit to unit agree with it.

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/tile/swizzled_tile.cuh"

namespace tutorial::tile {
namespace {

/// places [64, kColumns / 8]: where each unit lies.
template <int kColumns>
__global__ void find_units(int* places) {
  for (int i = int(threadIdx.x); i < 64 * kColumns / 8; i += int(blockDim.x)) {
    places[i] = SwizzledTile<kColumns>::unit(i / (kColumns / 8), i % (kColumns / 8) * 8);
  }
}

/// Counts the steps from a unit, down by multiples of 8 rows and right along the row, that lead elsewhere.
template <int kColumns>
__global__ void count_wrong_steps(int* wrong) {
  using Tile = SwizzledTile<kColumns>;
  const int row = int(threadIdx.x) % 16, column = int(threadIdx.x) / 16 * 8;  // as the lanes of a warp use it: 0 or 8
  *wrong = 0;
  for (int down = 0; down + row < 64; down += 16) {
    for (int right = 0; right < kColumns; right += 16) {
      if (Tile::advance(Tile::unit(row, column), down, right) != Tile::unit(row + down, column + right)) *wrong = 1;
    }
  }
}

template <int kColumns>
void expect_swizzled() {
  DeviceBuffer<int> buffer(64 * kColumns / 8), wrong(1);
  launch(find_units<kColumns>, {1, 128}, buffer.data());
  launch(count_wrong_steps<kColumns>, {1, 1}, wrong.data());
  const std::vector<int> places = buffer.download();
  EXPECT_EQ(std::set<int>(places.begin(), places.end()).size(), places.size()) << "two units in one place";
  for (int row = 0; row < 64; row += 8) {
    for (int unit = 0; unit < kColumns / 8; ++unit) {
      std::set<int> banks;  // groups of four
      for (int r = row; r < row + 8; ++r) banks.insert(places[std::size_t(r) * (kColumns / 8) + unit] / 8 % 8);
      EXPECT_EQ(banks.size(), 8U) << "rows " << row << " to " << row + 7 << ", unit " << unit;
    }
  }
  EXPECT_EQ(wrong.download()[0], 0);
}

TEST(SwizzledTileTest, EightRowsOfAUnitLieInEightPlaces) {
  expect_swizzled<64>();
  expect_swizzled<128>();
  expect_swizzled<256>();
}

/// Scales one unit of a tile [16, 64] whose element at address i is i % 128.
__global__ void scale_one(__nv_bfloat16* elements, int row, int column) {
  for (int i = 0; i < 16 * 64; ++i) elements[i] = __float2bfloat16(float(i % 128));
  const float factors[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  scale_unit(SwizzledTile<64>{elements}, row, column, factors);
}

TEST(SwizzledTileTest, ScalesTheElementsOfOneUnit) {
  constexpr int kRow = 11, kColumn = 40, kFirst = kRow * 64 + (kColumn / 8 ^ kRow % 8) * 8;
  DeviceBuffer<__nv_bfloat16> elements(16 * 64);
  launch(scale_one, {1, 1}, elements.data(), kRow, kColumn);
  const std::vector<__nv_bfloat16> scaled = elements.download();
  for (int i = 0; i < 16 * 64; ++i) {
    const int factor = i >= kFirst && i < kFirst + 8 ? i - kFirst + 1 : 1;
    const float expected = __bfloat162float(__float2bfloat16(float(factor * (i % 128))));
    ASSERT_EQ(__bfloat162float(scaled[std::size_t(i)]), expected) << i;
  }
}

}  // namespace
}  // namespace tutorial::tile
