/// @file
/// A state from device memory into a block's registers and back, and outputs out of registers.

#include <gtest/gtest.h>

#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/tile/decay_rows.cuh"
#include "common/tile/state.cuh"
#include "common/tile/store_tile.cuh"
#include "common/tile/test/matrices.hpp"

namespace tutorial::tile {
namespace {

constexpr int kStride = 200;  // elements from row to row of the state in memory, more than Dv

template <class Shape>
__global__ void load_and_store(const float* from, int Dk, int columns, float* to) {
  typename Shape::State S;
  load_state<Shape>(S, from, kStride, Dk, columns);
  store_state<Shape>(to, S, kStride, Dk, columns);
}

template <class Shape>
void expect_round_trip(int Dk, int columns) {
  const std::vector<float> from = normal_numbers(std::size_t(Shape::kDk) * kStride, 2);
  const DeviceBuffer<float> source(from);
  DeviceBuffer<float> copy(from.size()), zeros(from.size());
  copy.fill_bytes(0xFF);
  zeros.fill_bytes(0xFF);
  launch(load_and_store<Shape>, {1, kThreads}, source.data(), Dk, columns, copy.data());
  launch(load_and_store<Shape>, {1, kThreads}, static_cast<const float*>(nullptr), Dk, columns, zeros.data());
  const std::vector<float> copied = copy.download(), zero = zeros.download();
  for (int d = 0; d < Shape::kDk; ++d) {
    for (int j = 0; j < kStride; ++j) {
      const std::size_t i = std::size_t(d) * kStride + j;
      if (d < Dk && j < columns) {
        ASSERT_EQ(copied[i], from[i]) << d << ", " << j;
        ASSERT_EQ(zero[i], 0.0f) << d << ", " << j;
      } else {
        ASSERT_TRUE(copied[i] != copied[i]) << d << ", " << j << " was written";  // NaN
      }
    }
  }
}

TEST(StateTest, ComesBackAsItWas) {
  expect_round_trip<ChunkShape<64, 64>>(64, 64);
  expect_round_trip<ChunkShape<64, 128>>(48, 112);
  expect_round_trip<ChunkShape<128, 128>>(128, 128);
  expect_round_trip<ChunkShape<128, 64>>(80, 16);
  expect_round_trip<ChunkShape<256, 64>>(208, 64);
}

template <class Shape>
__global__ void load_and_decay(const float* from, const float* decays, float* to) {
  typename Shape::State S;
  load_state<Shape>(S, from, kStride, Shape::kDk, Shape::kDv);
  decay_rows<Shape>(S, [&](int d) { return float2{decays[d], decays[d + 1]}; });
  store_state<Shape>(to, S, kStride, Shape::kDk, Shape::kDv);
}

TEST(StateTest, EachRowHasItsDecay) {
  using Shape = ChunkShape<128, 64>;
  const std::vector<float> from = normal_numbers(std::size_t(Shape::kDk) * kStride, 2);
  const std::vector<float> factors = normal_numbers(Shape::kDk, 4);
  const DeviceBuffer<float> source(from), decays(factors);
  DeviceBuffer<float> to(from.size());
  launch(load_and_decay<Shape>, {1, kThreads}, source.data(), decays.data(), to.data());
  const std::vector<float> decayed = to.download();
  for (int d = 0; d < Shape::kDk; ++d) {
    for (int j = 0; j < Shape::kDv; ++j) {
      const std::size_t i = std::size_t(d) * kStride + j;
      ASSERT_EQ(decayed[i], factors[std::size_t(d)] * from[i]) << d << ", " << j;
    }
  }
}

/// O [64, kDv] from memory into accumulators, then by store_output() to memory, each row times its number.
template <class Shape>
__global__ void store_rows(const float* O_in, __nv_bfloat16* o, int stride, int rows, int columns) {
  const typename Shape::ValueTile V{dynamic_shared<__nv_bfloat16>()};
  typename Shape::Output O;
  const int lane = int(lane_index()), first_column = warp_index() * Shape::kWarpColumns;
  for (int t = 0; t < kChunk / 16; ++t) {
    for (int j = 0; j < Shape::kWarpColumns / 8; ++j) {
      for (int i = 0; i < 4; ++i) {
        const int row = t * 16 + lane / 4 + i / 2 * 8, column = first_column + j * 8 + lane % 4 * 2 + i % 2;
        O[t][j][i] = O_in[row * Shape::kDv + column];
      }
    }
  }
  store_output<Shape>(o, stride, rows, columns, O, V, [=](int i) { return float(8 * i + lane / 4); });
}

template <class Shape>
void expect_stored(int rows, int columns) {
  constexpr int kOutputStride = 136;
  const std::vector<float> O = normal_numbers(std::size_t(kChunk) * Shape::kDv, 3);
  const DeviceBuffer<float> in(O);
  DeviceBuffer<__nv_bfloat16> out(std::size_t(kChunk) * kOutputStride);
  out.fill_bytes(0xFF);
  launch(store_rows<Shape>, {1, kThreads, kChunk * Shape::kDv * sizeof(__nv_bfloat16)}, in.data(), out.data(),
         kOutputStride, rows, columns);
  const std::vector<__nv_bfloat16> stored = out.download();
  for (int row = 0; row < kChunk; ++row) {
    for (int column = 0; column < kOutputStride; ++column) {
      const float x = __bfloat162float(stored[std::size_t(row) * kOutputStride + column]);
      if (row < rows && column < columns) {
        const float expected = float(row) * O[std::size_t(row) * Shape::kDv + column];
        ASSERT_EQ(x, __bfloat162float(__float2bfloat16(expected))) << row << ", " << column;
      } else {
        ASSERT_TRUE(x != x) << row << ", " << column << " was written";
      }
    }
  }
}

TEST(StoreTileTest, WritesTheRowsAndColumnsThatExist) {
  expect_stored<ChunkShape<64, 64>>(64, 64);
  expect_stored<ChunkShape<64, 64>>(1, 16);
  expect_stored<ChunkShape<128, 128>>(63, 128);
  expect_stored<ChunkShape<128, 128>>(64, 80);
}

}  // namespace
}  // namespace tutorial::tile
