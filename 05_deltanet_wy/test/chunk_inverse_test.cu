/// @file
/// X = (I + A)^-1 of inverse.cuh against forward substitution in double, before anything is rounded.

#include "05_deltanet_wy/chunk/inverse.cuh"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/launch.cuh"
#include "common/device/memory.cuh"
#include "common/random.hpp"

namespace tutorial::delta_rule {
namespace {

constexpr int kRows = kBlocks * kBlock;

/// One block of four warps. @param A [64, 64] @param X [64, 64]; what lies above the diagonal's blocks is not written
__global__ void __launch_bounds__(32 * kBlocks) inverse_kernel(const float* A, float* X) {
  const InverseMemory memory{dynamic_shared<float>()};
  const int warp = int(threadIdx.x) / 32, lane = int(lane_index());
  for (int i = int(threadIdx.x); i < kRows * kRows; i += 32 * kBlocks) *memory.A(i / kRows, i % kRows) = A[i];
  __syncthreads();
  invert_diagonal_block(memory, warp);
  __syncthreads();
  BlockRow row;
  inverse_row(row, memory, warp);
#pragma unroll
  for (int c = 0; c < kBlocks; ++c) {
    if (c > warp) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int t = warp * kBlock + lane / 4 + i % 4 / 2 * 8, column = c * kBlock + i / 4 * 8 + lane % 4 * 2 + i % 2;
      store_global(X + t * kRows + column, row[c][i / 4][i % 4]);
    }
  }
}

/// Expects the inverse to be right for the A with these elements below the diagonal.
void expect_inverse(const std::function<double(int, int)>& element) {
  std::vector<float> A(kRows * kRows);
  for (int t = 0; t < kRows; ++t) {
    for (int i = 0; i < t; ++i) A[std::size_t(t * kRows + i)] = float(element(t, i));
  }
  const DeviceBuffer<float> input(A);
  DeviceBuffer<float> output(A.size());
  launch(inverse_kernel, {1u, 32u * kBlocks, std::size_t(InverseMemory::kBytes)}, input.data(), output.data());
  const std::vector<float> found = output.download();

  std::vector<double> X(A.size());
  double difference = 0, all = 0;
  for (int t = 0; t < kRows; ++t) {
    for (int c = 0; c <= t; ++c) {
      double& x = X[std::size_t(t * kRows + c)];
      x = t == c ? 1 : 0;
      for (int i = c; i < t; ++i) x -= double(A[std::size_t(t * kRows + i)]) * X[std::size_t(i * kRows + c)];
      difference += std::pow(double(found[std::size_t(t * kRows + c)]) - x, 2);
      all += x * x;
    }
    for (int c = t + 1; c < (t / kBlock + 1) * kBlock; ++c) EXPECT_EQ(found[std::size_t(t * kRows + c)], 0);
  }
  EXPECT_LE(std::sqrt(difference / all), 1e-5);
}

TEST(ChunkInverseTest, NothingBelowTheDiagonal) {
  expect_inverse([](int, int) { return 0; });
}

TEST(ChunkInverseTest, ProductsOfDrawnKeys) {
  for (const double size : {0.01, 0.1, 0.3}) {
    SCOPED_TRACE(size);
    const Random random(1, "A");
    expect_inverse([&](int t, int i) { return size * random.normal(std::uint64_t(t * kRows + i)); });
  }
}

// Keys that are alike: beta cosine everywhere, of which powers in a series would reach 1e3 and more.
TEST(ChunkInverseTest, KeysThatAreAlike) {
  for (const double beta : {0.5, 0.9, 0.999, 1.0}) {
    for (const double cosine : {0.5, 0.9, 1.0, -0.5}) {
      SCOPED_TRACE("beta " + std::to_string(beta) + ", cosine " + std::to_string(cosine));
      expect_inverse([&](int, int) { return beta * cosine; });
    }
  }
}

// Each block of the last row follows from all those right of it.
TEST(ChunkInverseTest, OneElement) {
  for (const int t : {1, 15, 16, 40, 63}) {
    for (const int i : {0, 14, 15, 39, 62}) {
      if (i < t) expect_inverse([&](int row, int column) { return row == t && column == i ? 0.75 : 0; });
    }
  }
}

}  // namespace
}  // namespace tutorial::delta_rule
