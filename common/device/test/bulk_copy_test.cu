/// @file
/// Bulk copies: which element of a tensor lies where in a tile, what happens at the borders, and rings of tiles.

#include "common/device/bulk_copy.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/device/proxy_fence.cuh"

namespace tutorial {
namespace {

class BulkCopy : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = bulk_copies_missing(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

constexpr TensorSizes kSizes{.B = 2, .H = 3, .L = 50, .D = 96};
constexpr std::int64_t kElements = kSizes.B * kSizes.H * kSizes.L * kSizes.D;

/// Element i of memory has the bits i + 1. (None of them is a NaN, and none is zero.)
std::vector<std::uint16_t> numbered() {
  std::vector<std::uint16_t> memory(kElements);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::uint16_t>(i + 1);
  return memory;
}

/// The view of packed memory in the order [B, H, L, D], or, if `heads_inside`, [B, L, H, D].
template <class T>
View<T> view_of(T* data, bool heads_inside) {
  if (!heads_inside) return packed(data, kSizes.H, kSizes.L, kSizes.D);
  return {data, kSizes.L * kSizes.H * kSizes.D, kSizes.D, kSizes.H * kSizes.D};
}

__nv_bfloat16* as_bf16(DeviceBuffer<std::uint16_t>& memory) {
  return reinterpret_cast<__nv_bfloat16*>(memory.data());
}

constexpr TileOrigin kOrigins[] = {
    {},                                                     // all within
    {.column = 0, .position = 8, .head = 2, .batch = 1},    // other heads
    {.column = 64, .position = 40, .head = 1, .batch = 0},  // beyond the last row and the last column
    {.column = -8, .position = -5, .head = 0, .batch = 1},  // before the first
    {.column = 96, .position = 0, .head = 0, .batch = 0},   // nothing within
    {.column = 0, .position = 0, .head = 3, .batch = 0},    // a head that does not exist
};

/// The index in memory of an element of the tile; -1 outside of the tensor.
std::int64_t index_of(const TileOrigin& origin, int row, int column, bool heads_inside) {
  const std::int64_t d = origin.column + column, t = origin.position + row, h = origin.head, b = origin.batch;
  if (d < 0 || d >= kSizes.D || t < 0 || t >= kSizes.L || h < 0 || h >= kSizes.H || b < 0 || b >= kSizes.B) return -1;
  const std::uint16_t* begin = nullptr;
  return view_of(begin, heads_inside).row(b, h, t) + d - begin;
}

/// Loads one tile and writes its bytes as they are.
__global__ void load_one(const __grid_constant__ TensorMap map, TileOrigin origin, int rows, Eviction eviction,
                         std::uint16_t* out) {
  __shared__ Barrier full;
  auto* tile = dynamic_shared<std::uint16_t, kTileAlignment>();
  if (threadIdx.x == 0) {
    prefetch_map(map);
    full.init(1);
    fence_barrier_init();
    full.arrive_expect(tile_bytes(rows));
    load_tile(map, tile, full, origin, eviction);
  }
  __syncthreads();
  full.wait(0);
  for (unsigned i = threadIdx.x; i < tile_bytes(rows) / 2; i += blockDim.x) out[i] = tile[i];
}

TEST_F(BulkCopy, LoadsATileWithPermutedUnitsAndZerosOutside) {
  DeviceBuffer<std::uint16_t> memory(numbered());
  for (const bool heads_inside : {false, true}) {
    for (const int rows : {64, 16, 5, 256}) {
      const TensorMap map = tile_map(view_of(as_bf16(memory), heads_inside), kSizes, rows);
      for (const TileOrigin& origin : kOrigins) {
        DeviceBuffer<std::uint16_t> out(tile_bytes(rows) / 2);
        launch(load_one, {1, 64, tile_bytes(rows)}, map, origin, rows, Eviction::kNormal, out.data());
        const std::vector<std::uint16_t> tile = out.download();
        for (int row = 0; row < rows; ++row) {
          for (int column = 0; column < kTileColumns; ++column) {
            const std::int64_t index = index_of(origin, row, column, heads_inside);
            const int place = row * kTileColumns + (column / 8 ^ row % 8) * 8 + column % 8;
            ASSERT_EQ(tile[static_cast<std::size_t>(place)], index < 0 ? 0 : static_cast<std::uint16_t>(index + 1))
                << "row " << row << ", column " << column << ", position " << origin.position;
          }
        }
      }
    }
  }
}

TEST_F(BulkCopy, HintsForTheCacheChangeNoElement) {
  DeviceBuffer<std::uint16_t> memory(numbered());
  const TensorMap map = tile_map(view_of(as_bf16(memory), true), kSizes, 64);
  std::vector<std::uint16_t> tiles[3];
  for (const Eviction eviction : {Eviction::kNormal, Eviction::kFirst, Eviction::kLast}) {
    DeviceBuffer<std::uint16_t> out(tile_bytes(64) / 2);
    launch(load_one, {1, 64, tile_bytes(64)}, map, kOrigins[1], 64, eviction, out.data());
    tiles[int(eviction)] = out.download();
  }
  EXPECT_NE(tiles[0][0], 0);
  EXPECT_EQ(tiles[1], tiles[0]);
  EXPECT_EQ(tiles[2], tiles[0]);
}

/// Loads a tile and stores it somewhere else.
__global__ void move_tile(const __grid_constant__ TensorMap from, TileOrigin origin,
                          const __grid_constant__ TensorMap to, TileOrigin target, int rows) {
  __shared__ Barrier full;
  auto* tile = dynamic_shared<std::uint16_t, kTileAlignment>();
  if (threadIdx.x != 0) return;
  full.init(1);
  fence_barrier_init();
  full.arrive_expect(tile_bytes(rows));
  load_tile(from, tile, full, origin);
  full.wait(0);
  store_tile(to, tile, target);
  commit_stores();
  wait_stores_read<0>();
}

TEST_F(BulkCopy, StoresWhatLiesWithinTheTensor) {
  constexpr int kRows = 16;
  const TileOrigin origin{.column = 8, .position = 20, .head = 1, .batch = 1};
  DeviceBuffer<std::uint16_t> memory(numbered());
  const TensorMap from = tile_map(view_of(as_bf16(memory), false), kSizes, kRows);
  for (const bool heads_inside : {false, true}) {
    for (const TileOrigin& target : kOrigins) {
      if (target.column < 0 || target.position < 0) continue;  // for loads only
      DeviceBuffer<std::uint16_t> out(std::vector<std::uint16_t>(kElements, 0));
      launch(move_tile, {1, 32, tile_bytes(kRows)}, from, origin,
             tile_map(view_of(as_bf16(out), heads_inside), kSizes, kRows), target, kRows);
      std::vector<std::uint16_t> expected(kElements, 0);
      for (int row = 0; row < kRows; ++row) {
        for (int column = 0; column < kTileColumns; ++column) {
          const std::int64_t source = index_of(origin, row, column, false);
          const std::int64_t index = index_of(target, row, column, heads_inside);
          if (index >= 0) expected[static_cast<std::size_t>(index)] = static_cast<std::uint16_t>(source + 1);
        }
      }
      EXPECT_EQ(out.download(), expected) << "position " << target.position << ", column " << target.column;
    }
  }
}

/// All threads write a tile, element i is i + 1, and one of them stores it.
__global__ void write_tile(const __grid_constant__ TensorMap map, int rows) {
  auto* tile = dynamic_shared<std::uint16_t, kTileAlignment>();
  for (unsigned i = threadIdx.x; i < tile_bytes(rows) / 2; i += blockDim.x) {
    const unsigned row = i / kTileColumns, column = i % kTileColumns;
    store_for_copies(&tile[row * kTileColumns + (column / 8 ^ row % 8) * 8 + column % 8],
                     static_cast<std::uint16_t>(i + 1));
  }
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x != 0) return;
  store_tile(map, tile, {.position = 3, .head = 1});
  commit_stores();
  wait_stores_read<0>();
}

TEST_F(BulkCopy, StoresWhatThreadsHaveWritten) {
  constexpr int kRows = 16;
  DeviceBuffer<std::uint16_t> out(std::vector<std::uint16_t>(kElements, 0));
  launch(write_tile, {1, 96, tile_bytes(kRows)}, tile_map(view_of(as_bf16(out), false), kSizes, kRows), kRows);
  std::vector<std::uint16_t> expected(kElements, 0);
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kTileColumns; ++column) {
      const std::int64_t index = index_of({.position = 3, .head = 1}, row, column, false);
      expected[static_cast<std::size_t>(index)] = static_cast<std::uint16_t>(row * kTileColumns + column + 1);
    }
  }
  EXPECT_EQ(out.download(), expected);
}

/// Thread 0 brings all tiles of a head through a ring, 16 rows at a time, and 64 readers add up a column each:
/// sums[head][column].
template <int kStages>
__global__ void sum_columns(const __grid_constant__ TensorMap map, int L, unsigned* sums) {
  constexpr int kRows = 16;
  __shared__ Barrier full[kStages], empty[kStages];
  auto* tiles = dynamic_shared<std::uint16_t, kTileAlignment>();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      full[i].init(1);
      empty[i].init(64);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int head = static_cast<int>(blockIdx.x);
  if (threadIdx.x == 0) {
    auto ring = Ring<kStages>::producer();
    for (int t = 0; t < L; t += kRows) {
      ring.wait(empty);
      full[ring.stage()].arrive_expect(tile_bytes(kRows));
      load_tile(map, tiles + ring.stage() * kRows * kTileColumns, full[ring.stage()], {.position = t, .head = head});
      ring.advance();
    }
  } else if (threadIdx.x >= 32) {
    const int column = static_cast<int>(threadIdx.x) - 32;
    auto ring = Ring<kStages>::consumer();
    unsigned sum = 0;
    for (int t = 0; t < L; t += kRows) {
      ring.wait(full);
      const std::uint16_t* tile = tiles + ring.stage() * kRows * kTileColumns;
      for (int row = 0; row < kRows; ++row) sum += tile[row * kTileColumns + (column / 8 ^ row % 8) * 8 + column % 8];
      empty[ring.stage()].arrive();
      ring.advance();
    }
    sums[head * kTileColumns + column] = sum;
  }
}

template <int kStages>
void expect_sums() {
  DeviceBuffer<std::uint16_t> memory(numbered());
  DeviceBuffer<unsigned> sums(kSizes.H * kTileColumns);
  launch(sum_columns<kStages>, {kSizes.H, 96, kStages * tile_bytes(16)},
         tile_map(view_of(as_bf16(memory), true), kSizes, 16), static_cast<int>(kSizes.L), sums.data());
  const std::vector<unsigned> result = sums.download();
  for (int h = 0; h < kSizes.H; ++h) {
    for (int column = 0; column < kTileColumns; ++column) {
      unsigned expected = 0;
      for (int t = 0; t < kSizes.L; ++t) {
        expected += static_cast<unsigned>(index_of({.position = t, .head = h}, 0, column, true) + 1);
      }
      EXPECT_EQ(result[static_cast<std::size_t>(h * kTileColumns + column)], expected)
          << kStages << " stages, head " << h << ", column " << column;
    }
  }
}

TEST_F(BulkCopy, FillsRingsOfTiles) {
  expect_sums<1>();
  expect_sums<2>();
  expect_sums<3>();
}

}  // namespace
}  // namespace tutorial
