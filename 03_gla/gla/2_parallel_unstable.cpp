/// @file
/// Stage 2, `parallel_unstable`: chapter 02's two matrix products once more, on q and k that bring their gates along.
///
/// Idea: with B_t the product of all gates up to position t, what key i has left at position t is B_t / B_i. The
/// quotient of a query's and a key's number: so q_t takes its B_t, k_i divides by its B_i, and the gates are gone.
/// Mends: stage 1 takes L steps in line. Same: the result, as long as it holds.
///
///   B_t = exp(g_1) ... exp(g_t)                  element by element, B [L, Dk]; in `B H` below B is the batch
///   P = ((Q . B) (K / B)^T) . M                  M_ti = 1 for i <= t, else 0
///   O = scale ((Q . B) S_0 + P V)
///   S = diag(B_L) S_0 + (K / B . B_L)^T V         the final state: times B_L first, or the product with V overflows
///
/// Shapes: Q, K, B [L, Dk]; V, O [L, Dv]; S_0, S [Dk, Dv] of each of the B H heads, fp32 in host memory.
/// Who does what: OpenMP gives each thread a head at a time, Eigen does the products.
/// Memory: P, Q . B and K / B, 4 L^2 + 8 L Dk bytes a thread. Work: chapter 02's, and an exponential and a division for
/// each gate. Bytes: as in chapter 02, and g.
/// Limit: the cores' arithmetic. Needs: L <= 8192; B and Q . B of 1.2e-38, the least normal fp32 number, at least, but
/// for q of 0; K / B of 3.4e38, the largest, at most.
/// Weakness: those needs. B_t / B_i is a number between 0 and 1, but it is made of one that vanishes and one that grows
/// without bound: gates of exp(-0.05), as a trained layer has them, bring B below the smallest normal fp32 number after
/// 87 / 0.05 = 1750 positions. From there B has fewer and fewer digits, K / B overflows, and 0 times infinity is NaN.
/// Where q is small, Q . B loses its digits before B does.
/// This stage is meant to break: it looks for the first such position before it runs, names it, and is left out.
/// Scaling both factors does not help where B falls by more than 2^252 from the first position to the last. Stage 3
/// does not divide.
/// Source: arXiv 2312.06635, section 4.1, "parallel form", which warns of the division.

#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "03_gla/gla.hpp"
#include "common/parallel.hpp"

namespace tutorial::gla {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// All rows of a head.
template <class M, class T>
auto rows_of(const View<T>& view, int b, int h, int rows, int columns) {
  return Eigen::Map<M, 0, Eigen::OuterStride<>>(view.row(b, h, 0), rows, columns, Eigen::OuterStride<>(view.stride_l));
}

/// Calls f(t, B_t) for t = 0, 1, ... with the products of a head's gates, until it returns false.
template <class F>
void for_each_product(const FloatArguments& a, int b, int h, F f) {
  Eigen::ArrayXf product = Eigen::ArrayXf::Ones(a.Dk);
  for (int t = 0; t < a.L; ++t) {
    product *= Eigen::Map<const Eigen::ArrayXf>(a.g.row(b, h, t), a.Dk).exp();
    if (!f(t, product)) return;
  }
}

using Limits = std::numeric_limits<float>;  // min() is the least normal number

/// The first position at which a product of gates is of no use any more, and how close the numbers before it come.
struct Strength {
  int t = std::numeric_limits<int>::max(), b = 0, h = 0, d = 0;  // t: beyond every sequence where there is none
  float product = 1;                                             // there
  const char* why = nullptr;                                     // it is of no use
  float least = 1, largest = 0;  // |elements| of B and Q . B, and of K / B, of all heads; zeros left out
};

/// Why a product of gates B is of no use to q and k, or null.
const char* what_breaks(float B, float q, float k) {
  if (!std::isfinite(k / B)) return "makes K / B overflow";
  if (B < Limits::min()) return "loses its digits";
  if (q != 0 && std::abs(q * B) < Limits::min()) return "makes Q . B lose its digits";
  return nullptr;
}

Strength strength_of(const FloatArguments& a) {
  Strength first;
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      for_each_product(a, b, h, [&](int t, const Eigen::ArrayXf& product) {
        if (t >= first.t) return false;
        for (int d = 0; d < a.Dk; ++d) {
          const float B = product[d], q = a.q.row(b, h, t)[d], k = a.k.row(b, h, t)[d];
          if (const char* why = what_breaks(B, q, k)) {
            first = {t, b, h, d, B, why, first.least, first.largest};
            return false;
          }
          first.least = std::min(first.least, q != 0 ? std::min(B, std::abs(q * B)) : B);
          first.largest = std::max(first.largest, std::abs(k / B));
        }
        return true;
      });
    }
  }
  return first;
}

}  // namespace

void parallel_unstable(const FloatArguments& a) {
#pragma omp parallel
  {
    Matrix P(a.L, a.L), QB(a.L, a.Dk), KB(a.L, a.Dk);
    Eigen::ArrayXf last(a.Dk);
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < a.B; ++b) {
      for (int h = 0; h < a.H; ++h) {
        const auto Q = rows_of<const Matrix>(a.q, b, h, a.L, a.Dk);
        const auto K = rows_of<const Matrix>(a.k, b, h, a.L, a.Dk);
        const auto V = rows_of<const Matrix>(a.v, b, h, a.L, a.Dv);
        auto O = rows_of<Matrix>(a.o, b, h, a.L, a.Dv);
        for_each_product(a, b, h, [&](int t, const Eigen::ArrayXf& product) {
          QB.row(t) = Q.row(t).array() * product.transpose();
          KB.row(t) = K.row(t).array() / product.transpose();
          last = product;
          return true;
        });
        P.triangularView<Eigen::Lower>() = a.scale * QB * KB.transpose();
        O.noalias() = P.triangularView<Eigen::Lower>() * V;
        if (a.initial_state.data)
          O.noalias() += a.scale * QB * rows_of<const Matrix>(a.initial_state, b, h, a.Dk, a.Dv);
        if (a.final_state.data) {
          auto S = rows_of<Matrix>(a.final_state, b, h, a.Dk, a.Dv);
          KB *= last.matrix().asDiagonal();
          S.noalias() = KB.transpose() * V;
          if (a.initial_state.data) {
            S += last.matrix().asDiagonal() * rows_of<const Matrix>(a.initial_state, b, h, a.Dk, a.Dv);
          }
        }
      }
    }
  }
}

std::string parallel_unstable_limits(const FloatArguments& a) {
  if (a.L > 8192) return "L > 8192: the scores would take over 268 MB a thread and O(L^2) time";
  if (a.g.data == nullptr) return "";  // asked before there are gates
  const Strength first = strength_of(a);
  if (first.t >= a.L) return "";
  return fmt::format("meant to break, it holds up to L = {} here: B[{}, {}, {}, {}] = {:.2g} {}", first.t, first.b,
                     first.h, first.t, first.d, first.product, first.why);
}

std::string parallel_unstable_note(const FloatArguments& a) {
  const Strength s = strength_of(a);
  return fmt::format("holds: B and Q . B fall to {:.2g} (it breaks at {:.2g}), K / B grows to {:.2g} (at {:.2g})",
                     s.least, Limits::min(), s.largest, Limits::max());
}

std::int64_t parallel_unstable_memory(const FloatArguments& a) {
  return 4 * (std::int64_t(a.L) * a.L + 2 * std::int64_t(a.L) * a.Dk) * processor_count();
}

}  // namespace tutorial::gla
