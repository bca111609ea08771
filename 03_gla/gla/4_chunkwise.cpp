/// @file
/// `chunkwise`: chapter 02's chunks, and inside each of them a second level that gives the products back.
///
/// Idea: a decay from key i to query t can be cut anywhere between the two, exp(b_t - b_i) = exp(b_t - b_cut) exp(b_cut
/// - b_i). Both factors are at most 1: neither overflows, and if one underflows, so would the decay. The scores of
/// queries and keys that share a cut are one matrix product. Between chunks the cut is the chunk's border, and what
/// lies before it is in the state. Inside a chunk, the queries of a sub-chunk of c = 16 positions and all keys before
/// it share the sub-chunk's first row as their cut. Only the queries and keys of the same sub-chunk have no cut to
/// share: their scores are computed pair by pair, as in `parallel_log`.
/// Grows out of: 02_chunkwise/linear_attention/2_chunkwise.cpp
/// Improves on: `parallel_log` takes one exponential per term of each score, L / 2 per gate.
/// Unchanged: chapter 02's chunks. Sums of g are in double, as in `parallel_log`: on the CPU that costs little.
/// Equation:
///
///     b_t = the sum of g from the chunk's first position up to t         the rows of b [C, Dk]; b_end is its last row
///     O_n = scale ((Q_n . exp(b)) S_n + P V_n)                           decays from the chunk's start
///     S_{n+1} = diag(exp(b_end)) S_n + (K_n . exp(b_end - b))^T V_n      decays of the whole chunk, and to its end
///
///     P in sub-chunks, C = 64:    e           e  pair by pair: P_ti = sum_d Q_td K_id exp(b_td - b_id), i <= t
///                                 # e         #  a product: (Q . exp(b - b_cut)) (K . exp(b_cut - b))^T, where cut is
///                                 # # e          the first row of the line; all # of a line share K's factor
///                                 # # # e
///
/// Shapes: Q_n, K_n, b [C, Dk]; V_n, O_n [C, Dv]; S_n [Dk, Dv]; fp32 in host memory, b in double. S_0 is the state that
/// chunk 0 starts from. The last chunk and the last sub-chunk may be shorter.
/// Thread mapping: OpenMP gives each thread one head at a time. Eigen computes the #; the other products are too small
/// for Eigen's way and use add_product() (common/small_product.hpp).
/// Resources: 4 Dk Dv + 4 C^2 + 20 C Dk bytes per thread, which stay in the cache.
/// Work: chapter 02's, and per gate (c + 1) / 2 exponentials in the e, (1 - c / C) of Q and (C / c - 1) / 2 of K in the
/// #, and 2 + 1 / C for the state: 12.8 at C = 64.
/// Bytes: q, k, v, g and o once.
/// Bound by: the cores' arithmetic.
/// Requires: nothing; any C, any L, any g <= 0.
/// Weakness: a chunk waits for the state of the chunk before, and there are only as many threads as cores.
/// Sources: arXiv 2312.06635, section 4.2 for chunks, section 4.3 for the second level ("secondary-level chunking").

#include <Eigen/Dense>
#include <algorithm>

#include "03_gla/gla.hpp"
#include "common/eigen_rows.hpp"
#include "common/small_product.hpp"

namespace tutorial::gla {
namespace {

using Sums = Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr int kSubChunk = 16;
constexpr double kLeastG = -1000;  // as in `parallel_log`

/// The exponentials of sums of g. The cast is a separate pass, so that Eigen computes many exponentials at once.
template <class X>
Matrix decays(const X& sums) {
  Matrix x = sums.template cast<float>();
  return x.array().exp();
}

/// A chunk's running sums of g.
template <class X>
Sums running_sums(const X& g) {
  Sums b = g.template cast<double>().array().max(kLeastG);
  for (Eigen::Index t = 1; t < b.rows(); ++t) b.row(t) += b.row(t - 1);
  return b;
}

/// P = a chunk's scores, zero above the diagonal. P, Q, K and b have as many rows.
template <class P, class X>
void compute_scores(P scores, const X& Q, const X& K, const Sums& b) {
  scores.setZero();
  for (Eigen::Index cut = 0, c; cut < b.rows(); cut += c) {  // the first row of each sub-chunk of queries
    c = std::min<Eigen::Index>(kSubChunk, b.rows() - cut);
    if (cut > 0) {  // with the keys of all sub-chunks before
      const Matrix q = Q.middleRows(cut, c).cwiseProduct(decays(b.middleRows(cut, c).rowwise() - b.row(cut)));
      const Matrix k = K.topRows(cut).cwiseProduct(decays(-(b.topRows(cut).rowwise() - b.row(cut))));
      scores.block(cut, 0, c, cut).noalias() = q * k.transpose();
    }
    for (Eigen::Index i = cut; i < cut + c; ++i) {  // key i of the sub-chunk itself with the queries from i on
      const Matrix decay = decays(b.middleRows(i, cut + c - i).rowwise() - b.row(i));
      scores.col(i).segment(i, cut + c - i) = Q.middleRows(i, cut + c - i).cwiseProduct(decay) * K.row(i).transpose();
    }
  }
}

}  // namespace

void chunkwise(const FloatArguments& a) {
  const int longest = std::min(a.C, a.L);
#pragma omp parallel
  {
    Matrix S(a.Dk, a.Dv), scores(longest, longest);
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < a.B; ++b) {
      for (int h = 0; h < a.H; ++h) {
        if (a.initial_state.data) {
          S = rows_of<const Matrix>(a.initial_state, b, h, 0, a.Dk, a.Dv);
        } else {
          S.setZero();
        }
        for (int t = 0, C; t < a.L; t += C) {
          C = std::min(longest, a.L - t);
          const auto Q = rows_of<const Matrix>(a.q, b, h, t, C, a.Dk);
          const auto K = rows_of<const Matrix>(a.k, b, h, t, C, a.Dk);
          const auto V = rows_of<const Matrix>(a.v, b, h, t, C, a.Dv);
          auto O = rows_of<Matrix>(a.o, b, h, t, C, a.Dv);
          const Sums sums = running_sums(rows_of<const Matrix>(a.g, b, h, t, C, a.Dk));
          const auto end = sums.row(C - 1);
          auto P = scores.topLeftCorner(C, C);
          compute_scores(P, Q, K, sums);

          const Matrix q = Q.cwiseProduct(decays(sums)), k = K.cwiseProduct(decays(-(sums.rowwise() - end)));
          O.setZero();
          add_product(O, a.scale, q, S);
          add_product(O, a.scale, P, V);
          S = decays(end).row(0).asDiagonal() * S;
          add_product(S, 1, k.transpose(), V);
        }
        if (a.final_state.data) rows_of<Matrix>(a.final_state, b, h, 0, a.Dk, a.Dv) = S;
      }
    }
  }
}

}  // namespace tutorial::gla
