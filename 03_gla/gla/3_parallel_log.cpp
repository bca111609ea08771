/// @file
/// `parallel_log`: subtracts logarithms instead of dividing, before anything can vanish.
///
/// Idea: G_t / G_i = exp(log G_t - log G_i), and that difference is the sum of g between the two positions. It is at
/// most 0, so its exponential is between 0 and 1, however small the gates are.
/// Grows out of: 2_parallel_unstable.cpp
/// Improves on: `parallel_unstable` computes G_t, which can underflow, and 1 / G_i, which can overflow.
/// Unchanged: the scores, and the products with V and with states.
/// Equation:
///
///     b_t = log G_t = g_1 + ... + g_t                            element by element; the rows of b [L, Dk]
///     P_ti = sum_d Q_td K_id exp(b_td - b_id)   for i <= t       0 above the diagonal
///     O = scale ((Q . exp(b)) S_0 + P V)
///     S_L = diag(exp(b_L)) S_0 + (K . exp(b_L - b))^T V
///
/// The sums b are in double. A difference of two long sums has the absolute error of the sums, which becomes the
/// relative error of the exponential: after 2000 positions of g = -0.05, b is near -100, where neighbouring fp32
/// numbers are 8e-6 apart. After one g of -1e4 the error would be 1e-3 for everything that follows. Each g is taken as
/// at least -1000, whose exponential is zero all the same. Then b stays above -1e7, and double keeps nine digits after
/// the decimal point.
/// Shapes: Q, K, b [L, Dk]; V, O [L, Dv]; S_0, S_L [Dk, Dv] of each of the B H heads; fp32 in host memory, b in double.
/// Thread mapping: OpenMP gives each thread one head at a time. Eigen computes the products with V and with states; a
/// score is a loop over d.
/// Resources: P, b and the decayed Q or K, 4 L^2 + 12 L Dk bytes per thread.
/// Work: the products of `parallel_unstable` with V and with states; per score Dk exponentials, Dk subtractions and
/// 2 Dk multiplications.
/// Bytes: q, k, v, g and o once, and the scores.
/// Bound by: exponentials, L / 2 per gate.
/// Requires: L <= 8192.
/// Weakness: the scores are no matrix product any more, because each of their terms has an exponential of its own:
/// units for matrix products cannot help. And the work grows with L^2 again.
/// Sources: arXiv 2312.06635, section 4.1, "parallel form": P in log space.

#include <Eigen/Dense>

#include "03_gla/gla.hpp"
#include "common/eigen_rows.hpp"

namespace tutorial::gla {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Sums = Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr double kLeastG = -1000;

}  // namespace

void parallel_log(const FloatArguments& a) {
#pragma omp parallel
  {
    Matrix P(a.L, a.L), decayed(a.L, a.Dk);
    Sums sums(a.L, a.Dk);
    Eigen::Array<float, 1, Eigen::Dynamic> decay(a.Dk);
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < a.B; ++b) {
      for (int h = 0; h < a.H; ++h) {
        const auto Q = rows_of<const Matrix>(a.q, b, h, 0, a.L, a.Dk);
        const auto K = rows_of<const Matrix>(a.k, b, h, 0, a.L, a.Dk);
        const auto V = rows_of<const Matrix>(a.v, b, h, 0, a.L, a.Dv);
        auto O = rows_of<Matrix>(a.o, b, h, 0, a.L, a.Dv);

        sums = rows_of<const Matrix>(a.g, b, h, 0, a.L, a.Dk).cast<double>().array().max(kLeastG);
        for (int t = 1; t < a.L; ++t) sums.row(t) += sums.row(t - 1);
        for (int t = 0; t < a.L; ++t) {
          for (int i = 0; i <= t; ++i) {
            decay = (sums.row(t) - sums.row(i)).cast<float>();
            P(t, i) = a.scale * (Q.row(t).array() * K.row(i).array() * decay.exp()).sum();
          }
        }
        O.noalias() = P.triangularView<Eigen::Lower>() * V;
        if (a.initial_state.data) {
          decayed = Q.array() * sums.cast<float>().exp();
          O.noalias() += a.scale * decayed * rows_of<const Matrix>(a.initial_state, b, h, 0, a.Dk, a.Dv);
        }
        if (a.final_state.data) {
          auto S = rows_of<Matrix>(a.final_state, b, h, 0, a.Dk, a.Dv);
          const auto last = sums.row(a.L - 1);
          decayed = K.array() * (-(sums.rowwise() - last)).cast<float>().exp();
          S.noalias() = decayed.transpose() * V;
          if (a.initial_state.data) {
            decay = last.cast<float>().exp();
            S += decay.matrix().asDiagonal() * rows_of<const Matrix>(a.initial_state, b, h, 0, a.Dk, a.Dv);
          }
        }
      }
    }
  }
}

}  // namespace tutorial::gla
