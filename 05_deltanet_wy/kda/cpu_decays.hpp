#pragma once
/// @file
/// Decays within a chunk, for the CPU stages in chunks: the operator's and its gradients'.

#include "05_deltanet_wy/chunk/cpu_chunks.hpp"

namespace tutorial::kda {

using delta_rule::Chunk, delta_rule::Matrix, delta_rule::Vector;
using delta_rule::read_rows, delta_rule::write_rows;

inline constexpr int kSubChunk = 16;      ///< positions
inline constexpr double kLeastG = -1000;  ///< exp of it is 0 in double, too: sums stay finite and keep their digits

/// The exponentials of sums of g.
template <class X>
Matrix decays(const X& sums) {
  return sums.array().exp();
}

/// A chunk's running sums of g. @param g [C, Dk]
inline Matrix running_sums(const Matrix& g) {
  Matrix b = g.cwiseMax(kLeastG);
  for (Eigen::Index t = 1; t < b.rows(); ++t) b.row(t) += b.row(t - 1);
  return b;
}

/// sum_d X_td K_id exp(b_td - b_id) for i <= t, zero above the diagonal (`chunkwise`). X, K and b [C, Dk].
Matrix decayed_products(const Matrix& X, const Matrix& K, const Matrix& b);

}  // namespace tutorial::kda
