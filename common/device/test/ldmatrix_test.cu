/// @file
/// Which element ldmatrix puts where: every element is its own number.

#include "common/device/ldmatrix.cuh"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"

namespace tutorial {
namespace {

constexpr unsigned kStride = 24;  // elements from row to row, a multiple of 16 bytes

/// Element c of row r of matrix i is 64 i + 8 r + c. Lane l loads into out[l].
template <int kMatrices, bool kTransposed>
__global__ void load(std::uint32_t (*out)[4]) {
  __shared__ __align__(16) std::uint16_t rows[32 * kStride];
  for (unsigned c = 0; c < 8; ++c) {
    rows[threadIdx.x * kStride + c] = static_cast<std::uint16_t>(threadIdx.x * 8 + c);
  }
  __syncthreads();
  std::uint32_t fragment[kMatrices];
  const std::uint16_t* row = &rows[threadIdx.x * kStride];
  if constexpr (kMatrices == 1) kTransposed ? ldmatrix_x1_trans(fragment, row) : ldmatrix_x1(fragment, row);
  if constexpr (kMatrices == 2) kTransposed ? ldmatrix_x2_trans(fragment, row) : ldmatrix_x2(fragment, row);
  if constexpr (kMatrices == 4) kTransposed ? ldmatrix_x4_trans(fragment, row) : ldmatrix_x4(fragment, row);
  for (int i = 0; i < kMatrices; ++i) out[threadIdx.x][i] = fragment[i];
}

template <int kMatrices, bool kTransposed>
void expect_places() {
  DeviceBuffer<std::uint32_t[4]> out(32);
  launch(load<kMatrices, kTransposed>, {1, 32}, out.data());
  std::vector<std::uint32_t> result(32 * 4);
  check(cudaMemcpy(result.data(), out.data(), out.bytes(), cudaMemcpyDeviceToHost));
  for (unsigned lane = 0; lane < 32; ++lane) {
    for (unsigned i = 0; i < kMatrices; ++i) {
      const unsigned row = kTransposed ? lane % 4 * 2 : lane / 4, column = kTransposed ? lane / 4 : lane % 4 * 2;
      const unsigned low = 64 * i + 8 * row + column, high = low + (kTransposed ? 8 : 1);
      EXPECT_EQ(result[lane * 4 + i], high << 16 | low) << "lane " << lane << ", matrix " << i;
    }
  }
}

TEST(Ldmatrix, GivesNeighboursOfARow) {
  expect_places<1, false>();
  expect_places<2, false>();
  expect_places<4, false>();
}

TEST(Ldmatrix, GivesNeighboursOfAColumn) {
  expect_places<1, true>();
  expect_places<2, true>();
  expect_places<4, true>();
}

#if TUTORIAL_EMULATOR

__global__ void load_misaligned(std::uint32_t* out) {
  __shared__ __align__(16) std::uint16_t rows[32 * kStride];
  std::uint32_t fragment[2];
  ldmatrix_x2(fragment, &rows[threadIdx.x * kStride + (threadIdx.x == 15)]);
  out[threadIdx.x] = fragment[0];
}

TEST(EmulatedLdmatrix, ReportsAMisalignedRow) {
  DeviceBuffer<std::uint32_t> out(32);
  try {
    launch(load_misaligned, {1, 32}, out.data());
    FAIL() << "not noticed";
  } catch (const CudaError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("misaligned address"), std::string::npos) << message;
    EXPECT_NE(message.find("load_misaligned"), std::string::npos) << message;
    EXPECT_NE(message.find("thread (15,0,0)"), std::string::npos) << message;
  }
}

#endif

}  // namespace
}  // namespace tutorial
