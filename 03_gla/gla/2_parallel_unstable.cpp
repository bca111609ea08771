/// @file
/// `parallel_unstable`: chapter 02's two matrix products again, on queries and keys that carry the gates.
///
/// Idea: let G_t be the product of all gates up to position t. From position i to position t, key i decays by G_t /
/// G_i, a factor of the query times a factor of the key. So q_t is multiplied by G_t, k_i is divided by G_i, and no
/// gates are left in the formula.
/// Grows out of: 02_chunkwise/linear_attention/1_parallel.cpp
/// Improves on: `recurrent` takes L dependent steps.
/// Unchanged: chapter 02's products, and the result as long as nothing overflows.
/// Equation:
///
///     G_t = exp(g_1) ... exp(g_t)                   element by element; G_1 to G_L are the rows of G [L, Dk]
///     P = ((Q . G) (K / G)^T) . M                   M_ti = 1 for i <= t, else 0
///     O = scale ((Q . G) S_0 + P V)
///     S_L = diag(G_L) S_0 + (K / G . G_L)^T V       times G_L first, or the product with V overflows
///
/// Shapes: Q, K, G [L, Dk]; V, O [L, Dv]; S_0, S_L [Dk, Dv] of each of the B H heads; fp32 in host memory.
/// Thread mapping: OpenMP gives each thread one head at a time; Eigen computes the products.
/// Resources: P, G, Q . G and K / G, 4 L^2 + 12 L Dk bytes per thread.
/// Work: chapter 02's, and per gate one exponential and one division.
/// Bytes: as in chapter 02, and g.
/// Bound by: the cores' arithmetic.
/// Requires: L <= 8192. G and Q . G of at least 1.2e-38, the smallest normal fp32 number, except where q is 0. K / G of
/// at most 3.4e38, the largest.
/// Weakness: these requirements. G_t / G_i is between 0 and 1, but it is computed from one number that vanishes and
/// another that grows without bound. A trained layer has gates of about exp(-0.05): then G falls below the smallest
/// normal number after 87 / 0.05 = 1750 positions, and Q . G does sooner if q is small. From there on G loses its
/// digits, K / G overflows, and 0 times infinity is NaN. The stage is meant to break: products_of_gates.cpp looks for
/// the first such position before the stage runs, and the chapter skips the stage and names the position. Scaling G
/// cannot help once G falls by more than 2^252 from the first position to the last.
/// Sources: arXiv 2312.06635, section 4.1, "parallel form", which warns of the division.

#include <Eigen/Dense>

#include "03_gla/gla.hpp"
#include "common/eigen_rows.hpp"

namespace tutorial::gla {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

}  // namespace

void parallel_unstable(const FloatArguments& a) {
#pragma omp parallel
  {
    Matrix P(a.L, a.L), G(a.L, a.Dk), QG(a.L, a.Dk), KG(a.L, a.Dk);
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < a.B; ++b) {
      for (int h = 0; h < a.H; ++h) {
        const auto Q = rows_of<const Matrix>(a.q, b, h, 0, a.L, a.Dk);
        const auto K = rows_of<const Matrix>(a.k, b, h, 0, a.L, a.Dk);
        const auto V = rows_of<const Matrix>(a.v, b, h, 0, a.L, a.Dv);
        auto O = rows_of<Matrix>(a.o, b, h, 0, a.L, a.Dv);

        G = rows_of<const Matrix>(a.g, b, h, 0, a.L, a.Dk).array().exp();
        for (int t = 1; t < a.L; ++t) G.row(t).array() *= G.row(t - 1).array();
        QG = Q.cwiseProduct(G);
        KG = K.cwiseQuotient(G);
        P.triangularView<Eigen::Lower>() = a.scale * QG * KG.transpose();  // the mask: a query sees no later key
        O.noalias() = P.triangularView<Eigen::Lower>() * V;
        if (a.initial_state.data) {
          O.noalias() += a.scale * QG * rows_of<const Matrix>(a.initial_state, b, h, 0, a.Dk, a.Dv);
        }
        if (a.final_state.data) {
          auto S = rows_of<Matrix>(a.final_state, b, h, 0, a.Dk, a.Dv);
          const auto decay = G.row(a.L - 1).asDiagonal();
          KG *= decay;
          S.noalias() = KG.transpose() * V;
          if (a.initial_state.data) S += decay * rows_of<const Matrix>(a.initial_state, b, h, 0, a.Dk, a.Dv);
        }
      }
    }
  }
}

}  // namespace tutorial::gla
