#pragma once
/// @file
/// The decays of a chunk on the CPU, from running sums of its logarithms. The sums are in double, and a gate is taken
/// as at least exp(-1000), which is zero all the same. So differences of sums are accurate to 1e-11 after any gate
/// (03_gla/gla/3_parallel_log.cpp).

#include <Eigen/Dense>
#include <algorithm>

#include "common/view.hpp"

namespace tutorial::simple_gla {

using Sums = Eigen::Array<double, Eigen::Dynamic, 1>;  ///< one per position of a chunk

/// exp(sums), element by element.
template <class X>
Eigen::VectorXf decays(const X& sums) {
  return sums.template cast<float>().exp().matrix();
}

/// The running sums of g in the C positions from t on.
inline Sums running_sums(const View<const float>& g, int b, int h, int t, int C) {
  constexpr double kStrongest = -1000;
  Sums sums(C);
  double sum = 0;
  for (int i = 0; i < C; ++i) {
    sum += std::max(double(*g.row(b, h, t + i)), kStrongest);
    sums[i] = sum;
  }
  return sums;
}

/// Multiplies each score P_ti with i <= t by the decay from position i to position t, and sets the others to zero. It
/// does not multiply those: their exponents are positive, so a power may be infinite, and infinity times 0 is NaN.
template <class Scores>
void decay_scores(Scores&& P, const Sums& sums) {
  for (Eigen::Index t = 0; t < P.rows(); ++t) {
    P.row(t).head(t + 1).array() *= decays(sums[t] - sums.head(t + 1)).transpose().array();
    P.row(t).tail(P.rows() - 1 - t).setZero();
  }
}

}  // namespace tutorial::simple_gla
