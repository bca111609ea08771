/// @file
/// Loads of a chunk's rows, through registers and by cp.async: all of a tile, and tiles that stick out of the tensor.

#include <gtest/gtest.h>

#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/tile/load_tile.cuh"
#include "common/tile/test/matrices.hpp"

namespace tutorial::tile {
namespace {

constexpr int kStride = 152;  // of the source, more than any tile is wide

/// out [64, kColumns] = the tile, row by row.
template <int kColumns, bool kAsync>
__global__ void load_and_copy(const __nv_bfloat16* from, int rows, int columns, __nv_bfloat16* out) {
  const SwizzledTile<kColumns> tile{dynamic_shared<__nv_bfloat16>()};
  for (int i = int(threadIdx.x); i < kChunk * kColumns; i += kThreads) tile.data[i] = __float2bfloat16(7.0f);
  __syncthreads();
  if constexpr (kAsync) {
    load_tile_async(tile, from, kStride, rows, columns);
    cp_async_commit();
    cp_async_wait<0>();
  } else {
    load_tile(tile, from, kStride, rows, columns);
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < kChunk * kColumns; i += kThreads) {
    const int row = i / kColumns, column = i % kColumns;
    out[i] = tile.data[tile.unit(row, column / 8 * 8) + column % 8];
  }
}

template <int kColumns, bool kAsync>
void expect_loaded(int rows, int columns) {
  const std::vector<float> from = normal_numbers(64 * kStride, 1);
  const DeviceBuffer<__nv_bfloat16> source(as_bf16(from));
  DeviceBuffer<__nv_bfloat16> out(64 * kColumns);
  launch(load_and_copy<kColumns, kAsync>, {1, kThreads, 64 * kColumns * sizeof(__nv_bfloat16)}, source.data(), rows,
         columns, out.data());
  const std::vector<__nv_bfloat16> loaded = out.download();
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      const bool is_there = row < rows && column < columns;
      ASSERT_EQ(__bfloat162float(loaded[std::size_t(row) * kColumns + column]),
                is_there ? from[std::size_t(row) * kStride + column] : 0.0f)
          << "row " << row << ", column " << column << " of " << rows << ", " << columns;
    }
  }
}

TEST(LoadTileTest, FillsWhatIsNotThereWithZeros) {
  for (const int rows : {64, 1000, 63, 1}) {
    for (const int columns : {64, 48, 16}) {
      expect_loaded<64, false>(rows, columns);
      expect_loaded<64, true>(rows, columns);
    }
    expect_loaded<128, false>(rows, 112);
    expect_loaded<128, true>(rows, 112);
    expect_loaded<128, true>(rows, 144);  // the tensor goes on beside the tile
  }
}

}  // namespace
}  // namespace tutorial::tile
