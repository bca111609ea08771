/// @file
/// `recurrent`: two walks through the sequence, one from each end.
///
/// Idea: dq_t needs sum_{i<=t} k_i^T v_i, which is the state S_t. A walk from the start computes it, as in the forward
/// pass. dk_i and dv_i need sum_{t>=i} q_t^T do_t, a running sum from the other end: the adjoint dS_i of the state. A
/// term of S_i reaches every later output, so every later output sends its gradient back to it. Both sums start from
/// zero and need only the inputs. So the forward pass has to store nothing for the backward pass.
/// Grows out of: 01_linear_attention/causal_dot_product/2_recurrent.cpp
/// Improves on: by the chain rule through the score matrix (reference.cpp), the gradients take 2 L^2 scores.
/// Unchanged: a state that a walk over the positions adds up; one position after the other.
/// Equation:
///
///   S_t = S_{t-1} + k_t^T v_t,     dq_t = do_t S_t^T                      for t = 1, ..., L
///   dS_t = dS_{t+1} + q_t^T do_t,  dk_t = v_t dS_t^T,  dv_t = k_t dS_t  for t = L, ..., 1
///
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv]; S, dS [Dk, Dv], one after the other.
/// Thread mapping: one thread. The lines of each walk share one loop over the rows of the state: a row is updated and
/// read while it is in registers.
/// Resources: one state, 4 Dk Dv bytes, which stays in the cache.
/// Work: 10 Dk Dv operations per head and position: 4 with S and 6 with dS. The forward pass takes 4.
/// Bytes: the first walk reads k, v and do, the second q, do, k and v; dq, dk and dv are written once.
/// Bound by: one core's arithmetic.
/// Weakness: one core.
/// Sources: arXiv 2006.16236, section 3.3.1, equations 13 to 15.

#include <cstddef>
#include <vector>

#include "01_linear_attention/causal_dot_product_backward.hpp"

namespace tutorial::causal_dot_product_backward {
namespace {

/// Both walks of one (batch, head). Real is the type of the states and of the sums.
template <class Real>
void walk(const Arguments& a, int b, int h) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  std::vector<Real> S(Dk * Dv);
  for (int t = 0; t < a.L; ++t) {
    const float *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    for (std::size_t d = 0; d < Dk; ++d) {
      Real sum = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] += Real(k[d]) * v[j];
        sum += S[d * Dv + j] * d_o[j];
      }
      a.dq.row(b, h, t)[d] = float(sum);
    }
  }

  std::vector<Real> dS(Dk * Dv), dv(Dv);
  for (int t = a.L - 1; t >= 0; --t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    dv.assign(Dv, 0);
    for (std::size_t d = 0; d < Dk; ++d) {
      Real sum = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        dS[d * Dv + j] += Real(q[d]) * d_o[j];
        sum += dS[d * Dv + j] * v[j];
        dv[j] += dS[d * Dv + j] * k[d];
      }
      a.dk.row(b, h, t)[d] = float(sum);
    }
    for (std::size_t j = 0; j < Dv; ++j) a.dv.row(b, h, t)[j] = float(dv[j]);
  }
}

}  // namespace

void recurrent(const Arguments& a) {
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walk<float>(a, b, h);
  }
}

void recurrent_double(const Arguments& a) {  // a reference that is not timed: it may use all cores
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walk<double>(a, b, h);
  }
}

}  // namespace tutorial::causal_dot_product_backward
