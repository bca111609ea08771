#pragma once
/// @file
/// Products of matrices that lie in the cache: those of a chunk on the CPU.
///
/// Eigen's own product first copies both factors into the order in which it is going to read them. That pays where each
/// is read many times over; those of a chunk are not. Here a tile of sums stays in registers while it walks along the
/// factors, which are read where they are.

#include <Eigen/Dense>

namespace tutorial {

/// In fp32, rows packed.
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// c [m, n] += factor a [m, k] b [k, n]. Rows of b and c are packed, and c is neither a nor b. Inlined, so that the
/// compiler sees how the factors lie in memory.
template <class A, class B, class C>
inline __attribute__((always_inline)) void add_product(C&& c, float factor, const A& a, const B& b) {
  constexpr int kRows = 4;
#ifdef __AVX512F__
  constexpr int kColumns = 64;  // 16 of the 32 registers of 16 floats
#else
  constexpr int kColumns = 16;  // 8 of the 16 registers of 8 floats
#endif
  const Eigen::Index rows = c.rows() / kRows * kRows, columns = c.cols() / kColumns * kColumns;
  for (Eigen::Index j = 0; j < columns; j += kColumns) {
    for (Eigen::Index i = 0; i < rows; i += kRows) {
      Eigen::Matrix<float, kRows, kColumns, Eigen::RowMajor> sums;
      sums.setZero();
      for (Eigen::Index k = 0; k < b.rows(); ++k) {
        for (int r = 0; r < kRows; ++r) sums.row(r) += a(i + r, k) * b.row(k).template segment<kColumns>(j);
      }
      c.template block<kRows, kColumns>(i, j) += factor * sums;
    }
  }
  // What no tile covers: to the right of the tiles, and below them.
  const Eigen::Index right = c.cols() - columns, below = c.rows() - rows;
  c.rightCols(right).noalias() += factor * a * b.rightCols(right);
  c.bottomLeftCorner(below, columns).noalias() += factor * a.bottomRows(below) * b.leftCols(columns);
}

}  // namespace tutorial
