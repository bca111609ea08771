/// @file
/// `chunkwise`: chapter 02's chunks; a scalar gate needs no second level.
///
/// Idea: if all of Dk decays alike, the decay of a score is a single factor, which may be applied after the product. So
/// the product of a chunk's queries and keys is chapter 02's, and each of its elements is then multiplied by the decay
/// from position i to position t. Chapter 03 needed sub-chunks because its decay is inside the sum over Dk.
/// Grows out of: 02_chunkwise/linear_attention/2_chunkwise.cpp
/// Improves on: `recurrent` takes L dependent steps.
/// Unchanged: the products, and one thread per head.
/// Equation: for the chunk from position s to position e,
///
///   P_ti = (q_t . k_i) exp(g_(i+1) + ... + g_t), i <= t                             # and a triangle of exponentials
///   O    = scale (P V + diag(exp(g_s + ... + g_t)) Q S)                             # #
///   S    = exp(g_s + ... + g_e) S + (diag(exp(g_(t+1) + ... + g_e)) K)^T V          #           (#: a matrix product)
///
/// All these sums are differences of the running sums from s on, which are in double (running_sums.hpp). Above the
/// diagonal the exponent is positive, and its power may be infinite: that half is not computed at all, because
/// multiplying it by 0 would give NaN.
///
/// Shapes: Q, K [C, Dk], V, O [C, Dv] of a chunk, S [Dk, Dv], P [C, C]; fp32 in host memory; running sums [C] in
/// double. The last chunk may be shorter.
/// Thread mapping: OpenMP gives each thread one head at a time; Eigen and add_product() compute the products.
/// Resources: 4 Dk Dv + 4 C^2 + 4 C Dk + 8 C bytes per thread, which stay in the cache.
/// Work: chapter 02's, and C / 2 + 2 exponentials per position: fewer than Dk.
/// Bytes: q, k, v, g and o once.
/// Bound by: the cores' arithmetic.
/// Requires: nothing; any C, any L, any g <= 0.
/// Weakness: a chunk waits for the state of the one before, and there are only as many threads as cores. `fused` runs
/// on the GPU.
/// Sources: arXiv 2405.21060, section 6, the block decomposition.

#include <Eigen/Dense>
#include <algorithm>

#include "04_fused_chunk/simple_gla.hpp"
#include "04_fused_chunk/simple_gla/running_sums.hpp"
#include "common/eigen_rows.hpp"
#include "common/small_product.hpp"

namespace tutorial::simple_gla {
void chunkwise(const FloatArguments& a) {
  const int longest = std::min(a.C, a.L);
#pragma omp parallel
  {
    Matrix S(a.Dk, a.Dv), scores(longest, longest), decayed(longest, a.Dk);
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
          const Sums sums = running_sums(a.g, b, h, t, C);
          const double end = sums[C - 1];
          auto P = scores.topLeftCorner(C, C);
          auto x = decayed.topRows(C);

          P.noalias() = Q * K.transpose();
          decay_scores(P, sums);
          x = decays(sums).asDiagonal() * Q;
          O.setZero();
          add_product(O, a.scale, P, V);
          add_product(O, a.scale, x, S);
          x = decays(end - sums).asDiagonal() * K;
          S *= float(std::exp(end));
          add_product(S, 1, x.transpose(), V);
        }
        if (a.final_state.data) rows_of<Matrix>(a.final_state, b, h, 0, a.Dk, a.Dv) = S;
      }
    }
  }
}

}  // namespace tutorial::simple_gla
