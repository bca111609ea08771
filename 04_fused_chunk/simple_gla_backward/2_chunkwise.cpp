/// @file
/// Stage 2, `chunkwise`: chapter 02's adjoints with three decays.
///
/// Idea: the gates of a chunk are factors on scores, on rows of products with the state, on rows that enter the state,
/// and on the state itself (simple_gla/2_chunkwise.cpp). The adjoint of a factor is the same factor. So each product of
/// chapter 02's backward pass gets the decay of its forward product. Read from the end, the decay from the chunk's
/// start and that to its end change places.
/// Grows out of: 02_chunkwise/linear_attention_backward/2_chunkwise.cpp
/// Improves on: `recurrent` reads and writes all of the state at each position.
/// Unchanged: two passes, nothing stored in between but q_t . dq'_t, one head per thread; dg as in `recurrent`.
/// Equation: with b_t, the sum of g from the first position of chunk n to t, b_end at its last position, and Gamma_ti =
/// exp(b_t - b_i), i <= t, else 0,
///
///   dQ_n = scale (diag(exp(b)) dO_n S^T + R_n K_n)             R_n = (dO_n V_n^T) . Gamma
///   S    = exp(b_end) S + (diag(exp(b_end - b)) K_n)^T V_n     for each chunk n, forwards
///   dK_n = diag(exp(b_end - b)) V_n dS^T + scale R_n^T Q_n
///   dV_n = diag(exp(b_end - b)) K_n dS + scale P_n^T dO_n        P_n = (Q_n K_n^T) . Gamma
///   dS   = exp(b_end) dS + scale (diag(exp(b)) Q_n)^T dO_n     for each chunk n, backwards
///   dg_t = dg_{t+1} + q_t . dq'_t - k_t . dk'_t,  ' without the diagonal of R;   k_L . dk'_L counts as 0
///
/// Shapes: Q_n, K_n [C, Dk]; V_n, dO_n [C, Dv]; P_n, R_n, Gamma [C, C]; S, dS [Dk, Dv]; fp32 in host memory; b and sums
/// for dg in double. The last chunk may be shorter.
/// Thread mapping: OpenMP gives each thread one head at a time; the products are Eigen's and add_product()'s
/// (common/small_product.hpp).
/// Resources: the state, the scores and the decayed rows of one chunk per thread, 4 Dk Dv + 4 C^2 + 4 C max(Dk, Dv)
/// bytes, and 8 L bytes.
/// Work: per position 5 Dk Dv multiply-adds with the states, C (3 Dk + 3 Dv) / 2 with the scores, and 3 C / 2 + 6
/// exponentials.
/// Bytes: k, v, g and do twice, q and each gradient once.
/// Bound by: the cores' arithmetic.
/// Requires: nothing; any C, any L, any g <= 0.
/// Weakness: each chunk waits for the state of the chunk before it, and there are only as many threads as cores. `walks`
/// runs on the GPU.
/// Sources: arXiv 2405.21060, section 6; arXiv 2312.06635, section 4.3.

#include <Eigen/Dense>
#include <algorithm>

#include "04_fused_chunk/simple_gla/running_sums.hpp"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "common/ceil_div.hpp"
#include "common/eigen_rows.hpp"
#include "common/small_product.hpp"

namespace tutorial::simple_gla {
namespace {

/// The data of one thread: the state and the scores of the head that it computes.
class Walk {
 public:
  explicit Walk(const FloatBackwardArguments& a)
      : a_(a), C_(std::min(a.C, a.L)), S_(a.Dk, a.Dv), scores_(C_, C_), rows_(C_, std::max(a.Dk, a.Dv)), read_(a.L) {}

  /// Both passes of a head.
  void head(int b, int h) {
    start_from(a_.initial_state, b, h);
    for (int n = 0; n < ceil_div(a_.L, C_); ++n) forwards(b, h, n * C_);
    dg_ = 0;
    if (a_.dfinal_state.data) dg_ = dots(rows_of<const Matrix>(a_.dfinal_state, b, h, 0, a_.Dk, a_.Dv), S_).sum();
    start_from(a_.dfinal_state, b, h);
    for (int n = ceil_div(a_.L, C_) - 1; n >= 0; --n) backwards(b, h, n * C_);
    if (a_.dinitial_state.data) rows_of<Matrix>(a_.dinitial_state, b, h, 0, a_.Dk, a_.Dv) = S_;
  }

 private:
  void start_from(const View<const float>& start, int b, int h) {
    if (start.data) {
      S_ = rows_of<const Matrix>(start, b, h, 0, a_.Dk, a_.Dv);
    } else {
      S_.setZero();
    }
  }

  /// Positions of a chunk from t on whose writes a gate may reach: the last one of all writes to the final state alone.
  int writers_of(int t, int C) const { return t + C == a_.L ? C - 1 : C; }

  /// The product of each row of x with the row of y, in double.
  template <class X, class Y>
  static Sums dots(const X& x, const Y& y) {
    return (x.template cast<double>().array() * y.template cast<double>().array()).rowwise().sum();
  }

  /// (x y^T) . Gamma.
  template <class X, class Y>
  auto decayed_scores(const X& x, const Y& y, const Sums& sums) {
    auto P = scores_.topLeftCorner(x.rows(), x.rows());
    P.noalias() = x * y.transpose();
    decay_scores(P, sums);
    return P;
  }

  /// diag(exp(exponents)) x. The next call overwrites it.
  template <class X>
  auto decayed(const Sums& exponents, const X& x) {
    auto rows = rows_.topLeftCorner(x.rows(), x.cols());
    rows = decays(exponents).asDiagonal() * x;
    return rows;
  }

  /// dQ of the chunk that begins at position t, and S after it.
  void forwards(int b, int h, int t) {
    const int C = std::min(C_, a_.L - t);
    const auto Q = rows_of<const Matrix>(a_.q, b, h, t, C, a_.Dk);
    const auto K = rows_of<const Matrix>(a_.k, b, h, t, C, a_.Dk);
    const auto V = rows_of<const Matrix>(a_.v, b, h, t, C, a_.Dv);
    const auto dO = rows_of<const Matrix>(a_.d_o, b, h, t, C, a_.Dv);
    auto dQ = rows_of<Matrix>(a_.dq, b, h, t, C, a_.Dk);
    const Sums sums = running_sums(a_.g, b, h, t, C);
    const double end = sums[C - 1];

    dQ.noalias() = a_.scale * decayed(sums, dO) * S_.transpose();
    auto R = decayed_scores(dO, V, sums);
    const Eigen::VectorXf own = a_.scale * R.diagonal();
    R.diagonal().setZero();
    add_product(dQ, a_.scale, R, K);
    read_.segment(t, C) = dots(Q, dQ);
    dQ += own.asDiagonal() * K;
    S_ *= float(std::exp(end));
    const int writers = writers_of(t, C);
    add_product(S_, 1, decayed(end - sums, K).topRows(writers).transpose(), V.topRows(writers));
  }

  /// dK, dV and dg of the chunk that begins at position t, and dS before it.
  void backwards(int b, int h, int t) {
    const int C = std::min(C_, a_.L - t);
    const auto Q = rows_of<const Matrix>(a_.q, b, h, t, C, a_.Dk);
    const auto K = rows_of<const Matrix>(a_.k, b, h, t, C, a_.Dk);
    const auto V = rows_of<const Matrix>(a_.v, b, h, t, C, a_.Dv);
    const auto dO = rows_of<const Matrix>(a_.d_o, b, h, t, C, a_.Dv);
    auto dK = rows_of<Matrix>(a_.dk, b, h, t, C, a_.Dk);
    auto dV = rows_of<Matrix>(a_.dv, b, h, t, C, a_.Dv);
    const Sums sums = running_sums(a_.g, b, h, t, C);
    const double end = sums[C - 1];

    dK.noalias() = decayed(end - sums, V) * S_.transpose();
    auto R = decayed_scores(dO, V, sums);
    const Eigen::VectorXf own = a_.scale * R.diagonal();
    R.diagonal().setZero();
    add_product(dK, a_.scale, R.transpose(), Q);
    Sums differences = read_.segment(t, C);
    differences.head(writers_of(t, C)) -= dots(K, dK).head(writers_of(t, C));
    dK += own.asDiagonal() * Q;
    dV.setZero();
    add_product(dV, 1, decayed(end - sums, K), S_);
    add_product(dV, a_.scale, decayed_scores(Q, K, sums).transpose(), dO);
    S_ *= float(std::exp(end));
    add_product(S_, a_.scale, decayed(sums, Q).transpose(), dO);

    for (int i = C - 1; i >= 0; --i) {
      dg_ += differences[i];
      *a_.dg.row(b, h, t + i) = float(dg_);
    }
  }

  const FloatBackwardArguments& a_;
  const int C_;
  Matrix S_;       // S forwards, dS backwards
  Matrix scores_;  // of one chunk
  Matrix rows_;    // of one chunk, decayed
  Sums read_;      // q_t . dq'_t
  double dg_ = 0;  // of the position that follows
};

}  // namespace

void chunkwise_backward(const FloatBackwardArguments& a) {
#pragma omp parallel
  {
    Walk walk(a);
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < a.B; ++b) {
      for (int h = 0; h < a.H; ++h) walk.head(b, h);
    }
  }
}

}  // namespace tutorial::simple_gla
