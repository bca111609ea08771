/// @file
/// Stage 2, `chunkwise`: the adjoint of each of a chunk's four products.
///
/// Idea: forwards a chunk is four products. The adjoint of a product C = A B is two products, dA = dC B^T and dB = A^T
/// dC, and the adjoint of a mask is the same mask. This rule, applied four times, gives the backward pass of a chunk:
///
///     forward               adjoint
///     P  = (Q K^T) . M      dQ += (dP . M) K        dK += (dP . M)^T Q
///     O  = scale Q S        dQ += scale dO S^T      dS += scale Q^T dO
///     O += scale P V        dP  = scale dO V^T      dV += scale P^T dO
///     S += K^T V            dK += V dS^T            dV += K dS
///
/// S is the state before the chunk and dS the gradient of the state after it. So dQ needs the walk from the beginning,
/// and dK and dV need the walk from the end. There are two walks, each with one state, as in `recurrent`.
/// Grows out of: 02_chunkwise/linear_attention/2_chunkwise.cpp
/// Improves on: `recurrent` reads and writes all of the state at each position.
/// Unchanged: the chunks of the operator's `chunkwise`, and the two passes of `recurrent`, with nothing stored in between.
/// Equation:
///
///   dQ_n = scale (dO_n S^T + R_n K_n)            S  += K_n^T V_n          for each chunk n, forwards
///   dK_n = V_n dS^T + scale R_n^T Q_n                                     R_n = (dO_n V_n^T) . M
///   dV_n = K_n dS + scale P_n^T dO_n             dS += scale Q_n^T dO_n   for each chunk n, backwards
///
/// Shapes: Q_n, K_n [C, Dk]; V_n, dO_n [C, Dv]; P_n, R_n [C, C]; S, dS [Dk, Dv]; fp32 in host memory. The last chunk
/// may be shorter.
/// Thread mapping: OpenMP gives each thread one head at a time; the products are Eigen's and add_product()'s
/// (common/small_product.hpp).
/// Resources: the state and the scores of one chunk per thread, 4 Dk Dv + 4 C^2 bytes.
/// Work: per position 5 Dk Dv multiply-adds with the states, and C (3 Dk + 3 Dv) / 2 with the scores. R is computed in
/// both passes.
/// Bytes: k, v and do twice, q and each gradient once.
/// Bound by: the cores' arithmetic.
/// Requires: nothing; any C and any L.
/// Weakness: each chunk waits for the state of the chunk before it. `materialized` computes all chunks at once.
/// Sources: arXiv 2312.06635, section 2.2, "chunkwise parallel form", and the backward pass in its appendix.

#include <Eigen/Dense>
#include <algorithm>

#include "02_chunkwise/linear_attention_backward.hpp"
#include "common/ceil_div.hpp"
#include "common/eigen_rows.hpp"
#include "common/small_product.hpp"

namespace tutorial::linear_attention {
namespace {

/// The data of one thread: the state and the scores of the head that it computes.
class Walk {
 public:
  explicit Walk(const FloatBackwardArguments& a) : a_(a), C_(std::min(a.C, a.L)), S_(a.Dk, a.Dv), scores_(C_, C_) {}

  /// Both passes of a head.
  void head(int b, int h) {
    start_from(a_.initial_state, b, h);
    for (int n = 0; n < ceil_div(a_.L, C_); ++n) forwards(b, h, n * C_);
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

  /// (x y^T) . M.
  template <class X, class Y>
  auto masked(const X& x, const Y& y) {
    auto P = scores_.topLeftCorner(x.rows(), x.rows());
    P.template triangularView<Eigen::Lower>() = x * y.transpose();
    P.template triangularView<Eigen::StrictlyUpper>().setZero();
    return P;
  }

  /// dQ of the chunk that begins at position t, and S after it.
  void forwards(int b, int h, int t) {
    const int C = std::min(C_, a_.L - t);
    const auto K = rows_of<const Matrix>(a_.k, b, h, t, C, a_.Dk);
    const auto V = rows_of<const Matrix>(a_.v, b, h, t, C, a_.Dv);
    const auto dO = rows_of<const Matrix>(a_.d_o, b, h, t, C, a_.Dv);
    auto dQ = rows_of<Matrix>(a_.dq, b, h, t, C, a_.Dk);
    dQ.noalias() = a_.scale * dO * S_.transpose();
    add_product(dQ, a_.scale, masked(dO, V), K);
    add_product(S_, 1, K.transpose(), V);
  }

  /// dK and dV of the chunk that begins at position t, and dS before it.
  void backwards(int b, int h, int t) {
    const int C = std::min(C_, a_.L - t);
    const auto Q = rows_of<const Matrix>(a_.q, b, h, t, C, a_.Dk);
    const auto K = rows_of<const Matrix>(a_.k, b, h, t, C, a_.Dk);
    const auto V = rows_of<const Matrix>(a_.v, b, h, t, C, a_.Dv);
    const auto dO = rows_of<const Matrix>(a_.d_o, b, h, t, C, a_.Dv);
    auto dK = rows_of<Matrix>(a_.dk, b, h, t, C, a_.Dk);
    auto dV = rows_of<Matrix>(a_.dv, b, h, t, C, a_.Dv);
    dK.noalias() = V * S_.transpose();
    add_product(dK, a_.scale, masked(dO, V).transpose(), Q);
    dV.setZero();
    add_product(dV, 1, K, S_);
    add_product(dV, a_.scale, masked(Q, K).transpose(), dO);
    add_product(S_, a_.scale, Q.transpose(), dO);
  }

  const FloatBackwardArguments& a_;
  const int C_;
  Matrix S_;       // S forwards, dS backwards
  Matrix scores_;  // of one chunk
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

}  // namespace tutorial::linear_attention
