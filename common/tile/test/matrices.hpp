#pragma once
/// @file
/// What the tests of the tiles share: small matrices on the host, and their products in double.

#include <cuda_bf16.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

namespace tutorial::tile {

/// Normal numbers, rounded to bf16, so that a kernel on bf16 gets them as they are.
inline std::vector<float> normal_numbers(std::size_t count, unsigned seed, float factor = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(count);
  for (float& x : numbers) x = __bfloat162float(__float2bfloat16(factor * normal(generator)));
  return numbers;
}

/// The same numbers in bf16.
inline std::vector<__nv_bfloat16> as_bf16(const std::vector<float>& numbers) {
  std::vector<__nv_bfloat16> rounded;
  rounded.reserve(numbers.size());
  for (const float x : numbers) rounded.push_back(__float2bfloat16(x));
  return rounded;
}

/// A matrix [rows, columns] of doubles, rows packed.
struct Matrix {
  int rows, columns;
  std::vector<double> elements;

  Matrix(int rows_, int columns_) : rows(rows_), columns(columns_), elements(std::size_t(rows_) * columns_) {}
  Matrix(int rows_, int columns_, const std::vector<float>& from)
      : rows(rows_), columns(columns_), elements(from.begin(), from.end()) {}

  double& operator()(int row, int column) { return elements[std::size_t(row) * columns + column]; }
  double operator()(int row, int column) const { return elements[std::size_t(row) * columns + column]; }
};

inline Matrix transpose(const Matrix& a) {
  Matrix result(a.columns, a.rows);
  for (int r = 0; r < a.rows; ++r) {
    for (int c = 0; c < a.columns; ++c) result(c, r) = a(r, c);
  }
  return result;
}

inline Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix result(a.rows, b.columns);
  for (int r = 0; r < a.rows; ++r) {
    for (int i = 0; i < a.columns; ++i) {
      for (int c = 0; c < b.columns; ++c) result(r, c) += a(r, i) * b(i, c);
    }
  }
  return result;
}

inline Matrix operator+(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.elements.size(); ++i) a.elements[i] += b.elements[i];
  return a;
}

/// |a - exact| / |exact|, Frobenius norms.
inline double relative_error(const Matrix& a, const Matrix& exact) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.elements.size(); ++i) {
    difference += std::pow(a.elements[i] - exact.elements[i], 2);
    norm += std::pow(exact.elements[i], 2);
  }
  return std::sqrt(difference / norm);
}

/// Zeros above the diagonal.
inline Matrix lower(Matrix a) {
  for (int r = 0; r < a.rows; ++r) {
    for (int c = r + 1; c < a.columns; ++c) a(r, c) = 0;
  }
  return a;
}

}  // namespace tutorial::tile
