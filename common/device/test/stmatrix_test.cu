/// @file
/// Which element stmatrix puts where: every element is its own number.

#include "common/device/stmatrix.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/device.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

constexpr unsigned kStride = 24;  // elements from row to row, a multiple of 16 bytes

/// Register i of lane l holds the elements 64 i + 2 l and 64 i + 2 l + 1. out: the rows of the matrices.
template <int kMatrices, bool kTransposed>
__global__ void store(std::uint16_t* out) {
  __shared__ __align__(16) std::uint16_t rows[32 * kStride];
  std::uint32_t fragment[kMatrices];
  for (unsigned i = 0; i < kMatrices; ++i) {
    const unsigned first = 64 * i + 2 * threadIdx.x;
    fragment[i] = (first + 1) << 16 | first;
  }
  stmatrix<kTransposed>(&rows[threadIdx.x * kStride], fragment);
  __syncwarp();
  if (threadIdx.x >= 8 * kMatrices) return;
  for (unsigned c = 0; c < 8; ++c) out[threadIdx.x * 8 + c] = rows[threadIdx.x * kStride + c];
}

template <int kMatrices, bool kTransposed>
void expect_places() {
  DeviceBuffer<std::uint16_t> out(64 * kMatrices);
  launch(store<kMatrices, kTransposed>, {1, 32}, out.data());
  const std::vector<std::uint16_t> result = out.download();
  for (unsigned matrix = 0; matrix < kMatrices; ++matrix) {
    for (unsigned row = 0; row < 8; ++row) {
      for (unsigned column = 0; column < 8; ++column) {
        const unsigned across = kTransposed ? column : row, along = kTransposed ? row : column;
        EXPECT_EQ(result[matrix * 64 + row * 8 + column], 64 * matrix + 8 * across + along)
            << "matrix " << matrix << ", row " << row << ", column " << column;
      }
    }
  }
}

class Stmatrix : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = bulk_copies_missing(); !reason.empty()) GTEST_SKIP() << reason;
  }
};

TEST_F(Stmatrix, StoresNeighboursOfARow) {
  expect_places<1, false>();
  expect_places<2, false>();
  expect_places<4, false>();
}

TEST_F(Stmatrix, StoresNeighboursOfAColumn) {
  expect_places<1, true>();
  expect_places<2, true>();
  expect_places<4, true>();
}

}  // namespace
}  // namespace tutorial
