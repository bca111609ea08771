#include <Eigen/Dense>
#include <emulator/host_call.hpp>

#include "common/device/error.hpp"
#include "common/device/matmul.hpp"
#include "common/device/stream.hpp"

namespace tutorial {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Matrix load(const float* from, int rows, int columns) {
  return Eigen::Map<const Matrix>(from, rows, columns);
}

Matrix load(const __nv_bfloat16* from, int rows, int columns) {
  Matrix matrix(rows, columns);
  for (Eigen::Index i = 0; i < matrix.size(); ++i) matrix.data()[i] = __bfloat162float(from[i]);
  return matrix;
}

void store(const Matrix& matrix, float* to) {
  Eigen::Map<Matrix>(to, matrix.rows(), matrix.cols()) = matrix;
}

void store(const Matrix& matrix, __nv_bfloat16* to) {
  for (Eigen::Index i = 0; i < matrix.size(); ++i) to[i] = __float2bfloat16(matrix.data()[i]);
}

template <class In, class Out>
void multiply(const In* A, const In* B, Out* C, int m, int n, int k) {
  check(emulator::host_call(current_stream(), [=] {
    const Matrix product = load(A, m, k) * load(B, n, k).transpose();
    store(product, C);
  }));
}

}  // namespace

void matmul_transposed(const float* A, const float* B, float* C, int m, int n, int k) {
  multiply(A, B, C, m, n, k);
}

void matmul_transposed(const __nv_bfloat16* A, const __nv_bfloat16* B, __nv_bfloat16* C, int m, int n, int k) {
  multiply(A, B, C, m, n, k);
}

void matmul_transposed(const __nv_bfloat16* A, const __nv_bfloat16* B, float* C, int m, int n, int k) {
  multiply(A, B, C, m, n, k);
}

std::size_t matmul_memory() {
  return 0;
}

}  // namespace tutorial
