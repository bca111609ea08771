#include "common/small_product.hpp"

#include <algorithm>
#include <type_traits>

namespace tutorial {
namespace {

constexpr int kRows = 4;
#ifdef __AVX512F__
constexpr int kColumns = 64;  // 16 of the 32 registers of 16 floats
#else
constexpr int kColumns = 16;  // 8 of the 16 registers of 8 floats
#endif

/// A tile of c [rows, columns] at (i, j), at most kRows x kColumns. Both are constants where the tile is whole.
template <class Rows, class Columns>
inline void add_tile(float* c, Eigen::Index row, float factor, const Strided<float>& a, const Strided<float>& b,
                     Eigen::Index i, Eigen::Index j, Rows rows, Columns columns) {
  float sums[kRows][kColumns] = {};
  for (Eigen::Index k = 0; k < b.rows; ++k) {
    const float* from = b.data + k * b.row + j;
    for (int r = 0; r < rows; ++r) {
      const float x = a.data[(i + r) * a.row + k * a.column];
      for (int n = 0; n < columns; ++n) sums[r][n] += x * from[n];
    }
  }
  for (int r = 0; r < rows; ++r) {
    for (int n = 0; n < columns; ++n) c[(i + r) * row + j + n] += factor * sums[r][n];
  }
}

template <int N>
using Constant = std::integral_constant<int, N>;

template <class Real, int Order>
auto map(const Strided<Real>& m) {
  using Columns = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Order>;
  const Eigen::OuterStride<> distance(Order == Eigen::RowMajor ? m.row : m.column);
  return Eigen::Map<const Columns, 0, Eigen::OuterStride<>>(m.data, m.rows, m.columns, distance);
}

}  // namespace

void add_small_product(float* c, Eigen::Index row, float factor, const Strided<float>& a, const Strided<float>& b) {
  for (Eigen::Index j = 0; j < b.columns; j += kColumns) {
    const int columns = static_cast<int>(std::min<Eigen::Index>(kColumns, b.columns - j));
    for (Eigen::Index i = 0; i < a.rows; i += kRows) {
      const int rows = static_cast<int>(std::min<Eigen::Index>(kRows, a.rows - i));
      if (rows == kRows && columns == kColumns) {
        add_tile(c, row, factor, a, b, i, j, Constant<kRows>(), Constant<kColumns>());
      } else {
        add_tile(c, row, factor, a, b, i, j, rows, columns);
      }
    }
  }
}

template <class Real>
Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> large_product(const Strided<Real>& a,
                                                                                   const Strided<Real>& b) {
  constexpr int kByRows = Eigen::RowMajor, kByColumns = Eigen::ColMajor;
  if (a.column == 1) {
    if (b.column == 1) return map<Real, kByRows>(a) * map<Real, kByRows>(b);
    return map<Real, kByRows>(a) * map<Real, kByColumns>(b);
  }
  if (b.column == 1) return map<Real, kByColumns>(a) * map<Real, kByRows>(b);
  return map<Real, kByColumns>(a) * map<Real, kByColumns>(b);
}

template Matrix large_product(const Strided<float>&, const Strided<float>&);
template Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> large_product(const Strided<double>&,
                                                                                              const Strided<double>&);

}  // namespace tutorial
