/// @file
/// Stage 1, `recurrent`: the gradients position after position, in two passes.
///
/// Idea: k_t^T v_t is part of the state that every position from t on reads. So the gradients of k_t and v_t depend on
/// a sum over these positions. It is a running sum like S, but taken from the end: dS. A first pass walks forwards with
/// S and computes dq. A second pass walks backwards with dS and computes dk and dv. Nothing is stored in between.
/// Grows out of: 01_linear_attention/causal_dot_product_backward/1_recurrent.cpp
/// Improves on: there, both passes start from zeros. Here S starts from the initial state and dS from the gradient of the
/// final state; the outputs have a scale, and each head has a thread.
/// Unchanged: the two passes.
/// Equation:
///
///   S_t  = S_{t-1} + k_t^T v_t             dq_t = scale do_t S_t^T                     t = 1 ... L
///   dS_t = dS_{t+1} + scale q_t^T do_t     dk_t = v_t dS_t^T     dv_t = k_t dS_t       t = L ... 1
///   dinitial_state = dS_1
///
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv]; S, dS and their like [Dk, Dv]; all in host memory. The
/// stage computes in fp32; in double the same code is the reference for all stages.
/// Thread mapping: one thread per head.
/// Resources: one state of Dk Dv numbers per thread, S and then dS.
/// Work: 2 Dk Dv multiply-adds per position in the first pass, 3 Dk Dv in the second.
/// Bytes: k, v and do twice, q and each gradient once. The state is read and written at every position, in the cache.
/// Bound by: the cores' arithmetic, one position after the other.
/// Requires: nothing.
/// Weakness: the steps are sequential, and none is a matrix product. `chunkwise` makes them products.
/// Sources: arXiv 2006.16236, section 3.3.1, equations 13 to 15 and algorithm 1.

#include <cstddef>
#include <vector>

#include "02_chunkwise/linear_attention_backward.hpp"

namespace tutorial::linear_attention {
namespace {

/// The state [Dk, Dv] that a walk starts from: zeros if none is given.
template <class Real>
std::vector<Real> start_of(const FloatBackwardArguments& a, const View<const float>& start, int b, int h) {
  std::vector<Real> S(std::size_t(a.Dk) * std::size_t(a.Dv));
  for (int d = 0; d < a.Dk && start.data; ++d) {
    for (int j = 0; j < a.Dv; ++j) S[std::size_t(d) * std::size_t(a.Dv) + std::size_t(j)] = start.row(b, h, d)[j];
  }
  return S;
}

/// Both passes of one head.
template <class Real>
void walk(const FloatBackwardArguments& a, int b, int h) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  const Real scale = a.scale;
  std::vector<Real> S = start_of<Real>(a, a.initial_state, b, h);
  for (int t = 0; t < a.L; ++t) {
    const float *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    for (std::size_t d = 0; d < Dk; ++d) {
      Real sum = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] += Real(k[d]) * v[j];
        sum += S[d * Dv + j] * d_o[j];
      }
      a.dq.row(b, h, t)[d] = float(scale * sum);
    }
  }

  std::vector<Real> dS = start_of<Real>(a, a.dfinal_state, b, h), dv(Dv);
  for (int t = a.L - 1; t >= 0; --t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    dv.assign(Dv, 0);
    for (std::size_t d = 0; d < Dk; ++d) {
      Real sum = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        dS[d * Dv + j] += scale * q[d] * d_o[j];
        sum += dS[d * Dv + j] * v[j];
        dv[j] += dS[d * Dv + j] * k[d];
      }
      a.dk.row(b, h, t)[d] = float(sum);
    }
    for (std::size_t j = 0; j < Dv; ++j) a.dv.row(b, h, t)[j] = float(dv[j]);
  }
  for (std::size_t d = 0; d < Dk && a.dinitial_state.data; ++d) {
    for (std::size_t j = 0; j < Dv; ++j) a.dinitial_state.row(b, h, std::int64_t(d))[j] = float(dS[d * Dv + j]);
  }
}

template <class Real>
void walk_all(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walk<Real>(a, b, h);
  }
}

}  // namespace

void recurrent_double_backward(const FloatBackwardArguments& a) {
  walk_all<double>(a);
}

void recurrent_backward(const FloatBackwardArguments& a) {
  walk_all<float>(a);
}

}  // namespace tutorial::linear_attention
