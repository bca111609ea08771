/// @file
/// `chunkwise` of --backward: the two levels of the operator's `chunkwise`, with the adjoint of each of its products.
///
/// Idea: an adjoint has the decays of its product, at the same cuts. Between chunks the cut is the chunk's border:
/// queries are decayed from there and keys up to there, in the products and in their adjoints. Inside a chunk the
/// gradients dq' and dk' of all pairs of a query's sub-chunk and an earlier one are two products more with the factors
/// that the scores have. Pairs within a sub-chunk take one multiplication with their decay, of which q' and k' then
/// share the result. The closed form gives dg as in `closed_form`, now for whole chunks.
/// Grows out of: 02_chunkwise/linear_attention_backward/2_chunkwise.cpp
/// Improves on: `closed_form` reads and writes all of the state at each position.
/// Unchanged: two walks, each with one state; chunks of C and sub-chunks of 16, with sums of g in double, as in the
/// operator's `chunkwise`.
/// Equation: b, b_end as there; ' is without the pairs of a position with itself, whose scores are the diagonal of R
///
///   R_n   = (dO_n V_n^T) . M                       P_ti = sum_d Q_td K_id exp(b_td - b_id), i <= t
///   dQ'_n = scale (exp(b) . (dO_n S^T) + X)        X_td = sum over i < t of R_ti K_id exp(b_td - b_id)
///   S     = diag(exp(b_end)) S + (K_n . exp(b_end - b))^T V_n               for each chunk n, forwards
///   dK'_n = exp(b_end - b) . (V_n dS^T) + scale Y  Y_id = sum over t > i of R_ti Q_td exp(b_td - b_id)
///   dV_n  = (K_n . exp(b_end - b)) dS + scale P^T dO_n
///   dg_t  = dg_{t+1} + (Q . dQ')_t - (K . dK')_t
///   dS    = diag(exp(b_end)) dS + scale (Q_n . exp(b))^T dO_n               for each chunk n, backwards
///
/// Shapes: Q_n, K_n, b [C, Dk]; V_n, dO_n [C, Dv]; P, R [C, C]; S, dS [Dk, Dv]; fp32 in host memory, b in double. The
/// last chunk and the last sub-chunk may be shorter. The first walk leaves dQ' without X in the place of dQ.
/// Thread mapping: OpenMP gives each thread one head at a time; the products are Eigen's and add_product()'s
/// (common/small_product.hpp).
/// Resources: the state, P and R of one chunk per thread, and six matrices [C, Dk].
/// Work: per position 5 Dk Dv multiply-adds with the states, and C (3 Dk + 2 Dv) / 2 with the scores.
/// Bytes: k, v, g and do twice, q once, each gradient once, and dq twice more.
/// Bound by: the cores' arithmetic.
/// Requires: nothing; any C, any L, any g <= 0.
/// Weakness: each chunk waits for the state of the chunk before it.
/// Sources: arXiv 2312.06635, section 4.3, and the backward pass in its appendix.

#include <Eigen/Dense>
#include <algorithm>

#include "03_gla/gla_backward.hpp"
#include "common/ceil_div.hpp"
#include "common/eigen_rows.hpp"
#include "common/small_product.hpp"

namespace tutorial::gla {
namespace {

using Sums = Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr int kSubChunk = 16;
constexpr double kLeastG = -1000;  // as in the operator's `chunkwise`

/// The exponentials of sums of g.
template <class X>
Matrix decays(const X& sums) {
  Matrix x = sums.template cast<float>();
  // Where Eigen computes several exponentials at once, a result may be 1e-38 at least. Closed gates have to give 0.
  return (x.array() < -87).select(0.0f, x.array().exp());
}

/// The data of one thread: the state and the scores of the head that it computes.
class Walk {
 public:
  explicit Walk(const FloatBackwardArguments& a)
      : a_(a), C_(std::min(a.C, a.L)), S_(a.Dk, a.Dv), P_(C_, C_), R_(C_, C_) {}

  /// Both passes of a head.
  void head(int b, int h) {
    start_from(a_.initial_state, b, h);
    dg_.setZero(a_.Dk);
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

  /// A chunk's running sums of g.
  Sums running_sums(int b, int h, int t, int C) const {
    Sums sums = rows_of<const Matrix>(a_.g, b, h, t, C, a_.Dk).template cast<double>().array().max(kLeastG);
    for (int i = 1; i < C; ++i) sums.row(i) += sums.row(i - 1);
    return sums;
  }

  /// dQ' of the chunk that begins at position t, without X, and S after it.
  void forwards(int b, int h, int t) {
    const int C = std::min(C_, a_.L - t);
    const auto K = rows_of<const Matrix>(a_.k, b, h, t, C, a_.Dk);
    const auto V = rows_of<const Matrix>(a_.v, b, h, t, C, a_.Dv);
    const auto dO = rows_of<const Matrix>(a_.d_o, b, h, t, C, a_.Dv);
    auto dQ = rows_of<Matrix>(a_.dq, b, h, t, C, a_.Dk);
    const Sums sums = running_sums(b, h, t, C);
    dQ.noalias() = a_.scale * dO * S_.transpose();
    dQ = dQ.cwiseProduct(decays(sums));
    const Matrix k = K.cwiseProduct(decays(-(sums.rowwise() - sums.row(C - 1))));
    S_ = decays(sums.row(C - 1)).row(0).asDiagonal() * S_;
    add_product(S_, 1, k.topRows(C - 1).transpose(), V.topRows(C - 1));
    if (t + C == a_.L && a_.dfinal_state.data) {  // the last key's part of the final state has passed no gate
      dg_ = S_.cwiseProduct(rows_of<const Matrix>(a_.dfinal_state, b, h, 0, a_.Dk, a_.Dv)).rowwise().sum().transpose();
    }
    S_ += K.row(C - 1).transpose() * V.row(C - 1);
  }

  /// All pairs of a chunk but those of a position with itself: P, dQ += scale X and dK += scale Y.
  template <class P, class R, class X, class Y>
  void pairs(P scores, const R& dscores, const X& Q, const X& K, const Sums& b, Y& dQ, Matrix& dK) const {
    for (Eigen::Index cut = 0, c; cut < b.rows(); cut += c) {  // the first row of each sub-chunk of queries
      c = std::min<Eigen::Index>(kSubChunk, b.rows() - cut);
      if (cut > 0) {  // with the keys of all sub-chunks before
        const Matrix from_cut = decays(b.middleRows(cut, c).rowwise() - b.row(cut));
        const Matrix to_cut = decays(-(b.topRows(cut).rowwise() - b.row(cut)));
        const Matrix q = Q.middleRows(cut, c).cwiseProduct(from_cut), k = K.topRows(cut).cwiseProduct(to_cut);
        const auto r = dscores.block(cut, 0, c, cut);
        scores.block(cut, 0, c, cut).noalias() = q * k.transpose();
        dQ.middleRows(cut, c) += a_.scale * (r * k).cwiseProduct(from_cut);
        dK.topRows(cut) += a_.scale * (r.transpose() * q).cwiseProduct(to_cut);
      }
      for (Eigen::Index i = cut; i + 1 < cut + c; ++i) {  // key i of the sub-chunk itself with the queries after it
        const Eigen::Index first = i + 1, count = cut + c - first;
        const Matrix decay = decays(b.middleRows(first, count).rowwise() - b.row(i));
        const Matrix q = Q.middleRows(first, count).cwiseProduct(decay);
        const auto r = dscores.col(i).segment(first, count);
        scores.col(i).segment(first, count) = q * K.row(i).transpose();
        dQ.middleRows(first, count) += a_.scale * r.asDiagonal() * (decay * K.row(i).asDiagonal());
        dK.row(i) += a_.scale * (r.transpose() * q);
      }
    }
  }

  /// dQ, dK, dV and dg of the chunk that begins at position t, and dS before it.
  void backwards(int b, int h, int t) {
    const int C = std::min(C_, a_.L - t);
    const auto Q = rows_of<const Matrix>(a_.q, b, h, t, C, a_.Dk);
    const auto K = rows_of<const Matrix>(a_.k, b, h, t, C, a_.Dk);
    const auto V = rows_of<const Matrix>(a_.v, b, h, t, C, a_.Dv);
    const auto dO = rows_of<const Matrix>(a_.d_o, b, h, t, C, a_.Dv);
    auto dQ = rows_of<Matrix>(a_.dq, b, h, t, C, a_.Dk);
    auto dG = rows_of<Matrix>(a_.dg, b, h, t, C, a_.Dk);
    auto dV = rows_of<Matrix>(a_.dv, b, h, t, C, a_.Dv);
    const Sums sums = running_sums(b, h, t, C);
    const Matrix to_end = decays(-(sums.rowwise() - sums.row(C - 1)));
    auto P = P_.topLeftCorner(C, C), R = R_.topLeftCorner(C, C);
    R.noalias() = dO * V.transpose();
    P.setZero();
    P.diagonal() = Q.cwiseProduct(K).rowwise().sum();

    Matrix dK = (V * S_.transpose()).cwiseProduct(to_end);
    pairs(P, R, Q, K, sums, dQ, dK);
    dG = Q.cwiseProduct(dQ) - K.cwiseProduct(dK);
    if (t + C == a_.L) dG.row(C - 1) = Q.row(C - 1).cwiseProduct(dQ.row(C - 1));
    for (int i = C - 1; i >= 0; --i) dG.row(i) = dg_ += dG.row(i);
    dQ += a_.scale * R.diagonal().asDiagonal() * K;
    rows_of<Matrix>(a_.dk, b, h, t, C, a_.Dk) = dK + a_.scale * R.diagonal().asDiagonal() * Q;

    const Matrix q = Q.cwiseProduct(decays(sums)), k = K.cwiseProduct(to_end);
    dV.setZero();
    add_product(dV, 1, k, S_);
    add_product(dV, a_.scale, P.transpose(), dO);
    S_ = decays(sums.row(C - 1)).row(0).asDiagonal() * S_;
    add_product(S_, a_.scale, q.transpose(), dO);
  }

  const FloatBackwardArguments& a_;
  const int C_;
  Matrix S_;               // S forwards, dS backwards
  Matrix P_, R_;           // of one chunk
  Eigen::RowVectorXf dg_;  // of the position after
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

}  // namespace tutorial::gla
