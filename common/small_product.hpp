#pragma once
/// @file
/// Products of matrices on the CPU, compiled once and not in each file that multiplies: a compiler takes seconds for
/// one of Eigen's products.

#include <Eigen/Dense>

namespace tutorial {

/// In fp32, rows packed.
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// A matrix where it lies: element (i, j) is data[i * row + j * column], and one of the two distances is 1. A transpose has
/// them exchanged.
template <class Real>
struct Strided {
  const Real* data;
  Eigen::Index rows, columns, row, column;
};

/// An Eigen expression that lies in memory: a matrix, a map, a block of one, or the transpose of one.
template <class M>
Strided<typename M::Scalar> strided(const M& m) {
  const Eigen::Index row = M::IsRowMajor ? m.outerStride() : m.innerStride();
  const Eigen::Index column = M::IsRowMajor ? m.innerStride() : m.outerStride();
  return {m.data(), m.rows(), m.cols(), row, column};
}

/// c [m, n] += factor a b, where `row` is the distance of c's rows; b's rows are packed. See add_product().
void add_small_product(float* c, Eigen::Index row, float factor, const Strided<float>& a, const Strided<float>& b);

/// a b by Eigen, which first copies both factors into the order in which it is going to read them. Real: float, double.
template <class Real>
Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> large_product(const Strided<Real>& a,
                                                                                   const Strided<Real>& b);

/// c [m, n] += factor a [m, k] b [k, n], for matrices that lie in the cache: those of a chunk. Rows of b and c are packed,
/// and c is neither a nor b.
///
/// Eigen's own product copies its factors first. That pays where each is read many times over; those of a chunk are not.
/// Here a tile of sums stays in registers while it walks along the factors, which are read where they are.
template <class A, class B, class C>
void add_product(C&& c, float factor, const A& a, const B& b) {
  add_small_product(c.data(), c.outerStride(), factor, strided(a), strided(b));
}

/// a [m, k] b [k, n] by Eigen, for factors that lie in memory.
template <class A, class B>
auto product(const A& a, const B& b) {
  return large_product(strided(a), strided(b));
}

}  // namespace tutorial
