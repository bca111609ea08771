/// @file
/// Stage 4, `chunkwise`: chapter 02's chunks, and inside each of them a second level that gives the products back.
///
/// Idea: a decay from key i to query t may be cut at any position r between the two, exp(b_t - b_i) = exp(b_t - b_r)
/// exp(b_r - b_i), and both factors are at most 1: nothing overflows, and what underflows is nothing. With a cut that
/// many queries and many keys share, their scores are one matrix product. Between chunks the cut is the chunk's border:
/// what is on the other side is in the state. Inside a chunk, sub-chunks of c = 16 are cut at the first row of the
/// queries' sub-chunk. Only a sub-chunk with itself has no place for a cut; there it is stage 3.
/// Mends: stage 3 has an exponential for each term of each score, L / 2 for each gate. Same: sums of gates in double,
/// because stages on the CPU can afford it; heads over threads.
///
///   b_t = the sum of g from the chunk's first position up to t         b [C, Dk]; b_end its last row
///   O_n = scale ((Q_n . exp(b)) S_{n-1} + P V_n)                       decays from the chunk's start
///   S_n = diag(exp(b_end)) S_{n-1} + (K_n . exp(b_end - b))^T V_n      of the whole chunk, and to its end
///
///   P in sub-chunks, C = 64:    e           e  pair by pair: P_ti = sum_d Q_td K_id exp(b_td - b_id), i <= t
///                               # e         #  a product: (Q . exp(b - b_r)) (K . exp(b_r - b))^T, r the first
///                               # # e          row of the line: K's factor is shared by all of the line's #
///                               # # # e
///
/// Shapes: Q_n, K_n, b [C, Dk]; V_n, O_n [C, Dv]; S [Dk, Dv]; fp32 in host memory, b in double. The last chunk and the
/// last sub-chunk may be shorter.
/// Who does what: OpenMP gives each thread a head at a time. The # are Eigen's; the other products, which are too small
/// for Eigen's way, chapter 02's add_product().
/// Memory: 4 Dk Dv + 4 C^2 + 20 C Dk bytes a thread, which stay in the cache.
/// Work: chapter 02's, and for each gate (c + 1) / 2 exponentials in the e, (1 - c / C) + (C / c - 1) / 2 in the # (of
/// Q and of K), and 2 + 1 / C for the state: 12.8 at C = 64.
/// Bytes: q, k, v, g and o once.
/// Limit: the cores' arithmetic. Needs: nothing; any C, any L, any g <= 0.
/// Weakness: a chunk waits for the state of the one before, and there are as many threads as cores. The stages 5 and 6
/// bring both forms to the GPU.
/// Source: arXiv 2312.06635, section 4.2, chunks, and section 4.3, "secondary-level chunking".

#include <Eigen/Dense>
#include <algorithm>

#include "02_chunkwise/small_product.hpp"
#include "03_gla/gla.hpp"
#include "common/parallel.hpp"

namespace tutorial::gla {
namespace {

using linear_attention::add_product;
using linear_attention::Matrix;
using Sums = Eigen::Array<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

constexpr int kSubChunk = 16;
constexpr double kStrongest = -1000;  // as in stage 3

/// Some rows of a head, from position t on.
template <class M, class T>
auto rows_of(const View<T>& view, int b, int h, int t, int rows, int columns) {
  return Eigen::Map<M, 0, Eigen::OuterStride<>>(view.row(b, h, t), rows, columns, Eigen::OuterStride<>(view.stride_l));
}

/// The exponentials of sums of gates. The cast is done first and by itself: then Eigen computes many at once.
template <class X>
Matrix decays(const X& sums) {
  Matrix x = sums.template cast<float>();
  return x.array().exp();
}

/// A chunk's running sums of gates.
template <class G>
Sums running_sums(const G& g) {
  Sums b = g.template cast<double>().array().max(kStrongest);
  for (Eigen::Index t = 1; t < b.rows(); ++t) b.row(t) += b.row(t - 1);
  return b;
}

/// P = a chunk's scores, zero above the diagonal. P, Q, K and b have as many rows.
template <class P, class X>
void compute_scores(P scores, const X& Q, const X& K, const Sums& b) {
  scores.setZero();
  for (Eigen::Index r = 0, c; r < b.rows(); r += c) {
    c = std::min<Eigen::Index>(kSubChunk, b.rows() - r);
    if (r > 0) {  // all sub-chunks before, cut at r
      const Matrix q = Q.middleRows(r, c).cwiseProduct(decays(b.middleRows(r, c).rowwise() - b.row(r)));
      const Matrix k = K.topRows(r).cwiseProduct(decays(-(b.topRows(r).rowwise() - b.row(r))));
      scores.block(r, 0, c, r).noalias() = q * k.transpose();
    }
    for (Eigen::Index i = r; i < r + c; ++i) {  // key i of the sub-chunk with the queries from i on
      const Matrix kept = decays(b.middleRows(i, r + c - i).rowwise() - b.row(i));
      scores.col(i).segment(i, r + c - i) = Q.middleRows(i, r + c - i).cwiseProduct(kept) * K.row(i).transpose();
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

std::int64_t chunkwise_memory(const FloatArguments& a) {
  const std::int64_t C = std::min(a.C, a.L);
  return 4 * (std::int64_t(a.Dk) * a.Dv + C * C + 5 * C * a.Dk) * processor_count();
}

}  // namespace tutorial::gla
