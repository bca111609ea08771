/// @file
/// Stage 3, `parallel_log`: divide before anything can vanish, which is to subtract logarithms.
///
/// Idea: B_t / B_i = exp(log B_t - log B_i), and the difference is the sum of the gates between the two positions:
/// at most 0, so that its exponential is between 0 and 1, however strong the gates are.
/// Mends: stage 2 computes B_t and 1 / B_i, of which the one underflows and the other overflows. Same: the scores.
///
///   b_t = log B_t = g_1 + ... + g_t                            element by element, b [L, Dk], `sums` below
///   P_ti = sum_d Q_td K_id exp(b_td - b_id)   for i <= t       0 above the diagonal
///   O = scale ((Q . exp(b)) S_0 + P V)
///   S = diag(exp(b_L)) S_0 + (K . exp(b_L - b))^T V            the final state
///
/// The sums b are in double. A difference of two long sums has the absolute error of the sums: after 2000 gates of
/// -0.05, b is near -100, where neighbouring fp32 numbers are 8e-6 apart, and so much would be the relative error of
/// the exponential. Behind one gate of -1e4 it would be 1e-3, for all that comes after it. A gate is taken as -1000 at
/// least, whose exponential is zero all the same: then sums stay above -1e7 and double keeps nine digits behind the
/// point.
///
/// Shapes: Q, K, b [L, Dk]; V, O [L, Dv]; S_0, S [Dk, Dv] of each of the B H heads, fp32 in host memory, b in double.
/// Who does what: OpenMP gives each thread a head at a time. The products with V and with states are Eigen's; a score
/// is a loop over d.
/// Memory: P, b and what is decayed, 4 L^2 + 12 L Dk bytes a thread. Work: stage 2's products with V and states; and Dk
/// exponentials, subtractions and two multiplications a score. Bytes: q, k, v, g and o once, and the scores.
/// Limit: exponentials, L / 2 for each gate. Needs: L <= 8192.
/// Weakness: the scores are no matrix product any more, because each of their terms has an exponential of its own: the
/// units for matrix products have nothing to do. And L^2 is back. Stage 4 mends both.
/// Source: arXiv 2312.06635, section 4.1, "parallel form": P in log space.

#include <Eigen/Dense>
#include <algorithm>

#include "03_gla/gla.hpp"
#include "common/parallel.hpp"

namespace tutorial::gla {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Sums = Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Row = Eigen::Array<float, 1, Eigen::Dynamic>;

constexpr double kStrongest = -1000;

/// All rows of a head.
template <class M, class T>
auto rows_of(const View<T>& view, int b, int h, int rows, int columns) {
  return Eigen::Map<M, 0, Eigen::OuterStride<>>(view.row(b, h, 0), rows, columns, Eigen::OuterStride<>(view.stride_l));
}

}  // namespace

void parallel_log(const FloatArguments& a) {
#pragma omp parallel
  {
    Matrix P(a.L, a.L), decayed(a.L, a.Dk);
    Sums sums(a.L, a.Dk);
    Row decay(a.Dk);
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < a.B; ++b) {
      for (int h = 0; h < a.H; ++h) {
        const auto Q = rows_of<const Matrix>(a.q, b, h, a.L, a.Dk);
        const auto K = rows_of<const Matrix>(a.k, b, h, a.L, a.Dk);
        const auto V = rows_of<const Matrix>(a.v, b, h, a.L, a.Dv);
        auto O = rows_of<Matrix>(a.o, b, h, a.L, a.Dv);

        sums = rows_of<const Matrix>(a.g, b, h, a.L, a.Dk).cast<double>().array().max(kStrongest);
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
          O.noalias() += a.scale * decayed * rows_of<const Matrix>(a.initial_state, b, h, a.Dk, a.Dv);
        }
        if (a.final_state.data) {
          auto S = rows_of<Matrix>(a.final_state, b, h, a.Dk, a.Dv);
          const auto last = sums.row(a.L - 1);
          decayed = K.array() * (-(sums.rowwise() - last)).cast<float>().exp();
          S.noalias() = decayed.transpose() * V;
          if (a.initial_state.data) {
            decay = last.cast<float>().exp();
            S += decay.matrix().asDiagonal() * rows_of<const Matrix>(a.initial_state, b, h, a.Dk, a.Dv);
          }
        }
      }
    }
  }
}

std::string parallel_log_limits(const FloatArguments& a) {
  return a.L > 8192 ? "L > 8192: the scores would take over 268 MB a thread and O(L^2) time" : "";
}

std::int64_t parallel_log_memory(const FloatArguments& a) {
  return (4 * std::int64_t(a.L) * a.L + 12 * std::int64_t(a.L) * a.Dk) * processor_count();
}

}  // namespace tutorial::gla
