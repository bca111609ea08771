/// @file
/// Matrix products as chapters do them: cp.async brings the factors into shared memory, ldmatrix into registers, mma
/// multiplies.

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "common/device/buffer.hpp"
#include "common/device/cp_async.cuh"
#include "common/device/launch.cuh"
#include "common/device/ldmatrix.cuh"
#include "common/device/mma.cuh"

namespace tutorial {
namespace {

using Element = __nv_bfloat16;

constexpr int kPad = 8;  // elements at the end of a row: 8 rows then start in different banks

/// Copies a packed matrix of kColumns columns into shared memory, by all threads of the block. Does not wait.
template <int kColumns>
__device__ void copy_tile(Element (*shared)[kColumns + kPad], const Element* global, int rows) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * kColumns / 8; i += static_cast<int>(blockDim.x)) {
    const int row = i / (kColumns / 8), column = i % (kColumns / 8) * 8;
    cp_async<16>(&shared[row][column], &global[row * kColumns + column]);
  }
}

/// D [16, 8] = A [16, 16] B [16, 8], both factors stored plainly or transposed.
template <bool kTransposedA, bool kTransposedB>
__global__ void multiply_tile(const Element* A, const Element* B, float* D) {
  constexpr int kColumnsB = kTransposedB ? 16 : 8;
  __shared__ __align__(16) Element a_tile[16][16 + kPad];
  __shared__ __align__(16) Element b_tile[24 - kColumnsB][kColumnsB + kPad];
  copy_tile<16>(a_tile, A, 16);
  copy_tile<kColumnsB>(b_tile, B, 24 - kColumnsB);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();

  const unsigned l = threadIdx.x;
  std::uint32_t a[4], b[2];
  if constexpr (kTransposedA) {
    ldmatrix_x4_trans(a, &a_tile[l / 16 * 8 + l % 8][l / 8 % 2 * 8]);
  } else {
    ldmatrix_x4(a, &a_tile[l % 16][l / 16 * 8]);
  }
  if constexpr (kTransposedB) {
    ldmatrix_x2(b, &b_tile[l % 8][l / 8 % 2 * 8]);
  } else {
    ldmatrix_x2_trans(b, &b_tile[l % 16][0]);
  }
  float d[4] = {};
  mma_m16n8k16(d, a, b);
  for (unsigned i = 0; i < 4; ++i) D[(l / 4 + i / 2 * 8) * 8 + l % 4 * 2 + i % 2] = d[i];
}

/// D [64, 64] = A [64, 64] B [64, 64], by 4 warps of 16 rows each. B is loaded in two groups of 32 rows.
__global__ void multiply_block(const Element* A, const Element* B, float* D) {
  __shared__ __align__(16) Element a_tile[64][64 + kPad], b_tile[64][64 + kPad];
  copy_tile<64>(a_tile, A, 64);
  copy_tile<64>(b_tile, B, 32);
  cp_async_commit();
  copy_tile<64>(b_tile + 32, B + 32 * 64, 32);
  cp_async_commit();

  const unsigned l = threadIdx.x % 32, first_row = threadIdx.x / 32 * 16;
  float d[8][4] = {};
  for (unsigned k = 0; k < 64; k += 16) {
    if (k == 0) cp_async_wait<1>();
    if (k == 32) cp_async_wait<0>();
    __syncthreads();
    std::uint32_t a[4];
    ldmatrix_x4(a, &a_tile[first_row + l % 16][k + l / 16 * 8]);
    for (unsigned n = 0; n < 8; ++n) {
      std::uint32_t b[2];
      ldmatrix_x2_trans(b, &b_tile[k + l % 16][n * 8]);
      mma_m16n8k16(d[n], a, b);
    }
  }
  for (unsigned n = 0; n < 8; ++n) {
    for (unsigned i = 0; i < 4; ++i) D[(first_row + l / 4 + i / 2 * 8) * 64 + n * 8 + l % 4 * 2 + i % 2] = d[n][i];
  }
}

/// A row-major matrix.
struct Matrix {
  Matrix(int row_count, int column_count) : rows(row_count), columns(column_count), elements(rows * columns) {}

  static Matrix random(int rows, int columns, unsigned seed) {
    Matrix result(rows, columns);
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (Element& x : result.elements) x = __float2bfloat16(normal(generator));
    return result;
  }
  float at(int row, int column) const { return __bfloat162float(elements[row * columns + column]); }
  Matrix transposed() const {
    Matrix result(columns, rows);
    for (int i = 0; i < rows * columns; ++i) result.elements[i % columns * rows + i / columns] = elements[i];
    return result;
  }

  int rows, columns;
  std::vector<Element> elements;
};

void expect_product(const std::vector<float>& D, const Matrix& A, const Matrix& B) {
  for (int m = 0; m < A.rows; ++m) {
    for (int n = 0; n < B.columns; ++n) {
      double sum = 0;
      for (int k = 0; k < A.columns; ++k) sum += static_cast<double>(A.at(m, k)) * B.at(k, n);
      ASSERT_NEAR(D[m * B.columns + n], sum, 1e-4) << m << ", " << n;  // fp32 sums of up to 64 terms of about 1
    }
  }
}

TEST(BlockProduct, TileFromEveryLayoutOfItsFactors) {
  const Matrix A = Matrix::random(16, 16, 1), B = Matrix::random(16, 8, 2);
  const auto run = [&](auto kernel, const Matrix& a, const Matrix& b) {
    const DeviceBuffer<Element> a_device(a.elements), b_device(b.elements);
    DeviceBuffer<float> d(16 * 8);
    launch(kernel, {1, 32}, a_device.data(), b_device.data(), d.data());
    expect_product(d.download(), A, B);
  };
  run(multiply_tile<false, false>, A, B);
  run(multiply_tile<true, false>, A.transposed(), B);
  run(multiply_tile<false, true>, A, B.transposed());
  run(multiply_tile<true, true>, A.transposed(), B.transposed());
}

TEST(BlockProduct, FourWarps) {
  const Matrix A = Matrix::random(64, 64, 3), B = Matrix::random(64, 64, 4);
  const DeviceBuffer<Element> a(A.elements), b(B.elements);
  DeviceBuffer<float> d(64 * 64);
  launch(multiply_block, {1, 128}, a.data(), b.data(), d.data());
  expect_product(d.download(), A, B);
}

}  // namespace
}  // namespace tutorial
