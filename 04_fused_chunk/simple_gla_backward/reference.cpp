/// @file
/// The reference of all stages, in double: dg from S and dS of the same position.
///
///   S'_t = exp(g_t) S_{t-1},   S_t = S'_t + k_t^T v_t,   dq_t = scale do_t S_t^T                        t = 1 ... L
///   dS_t = exp(g_{t+1}) dS_{t+1} + scale q_t^T do_t,   dk_t = v_t dS_t^T,   dv_t = k_t dS_t,
///   dg_t = <S'_t, dS_t>                                                                               t = L ... 1
///
/// Every term of dg_t contains the gate of t, so nothing cancels, however strong gates are. The walk from the end needs
/// S'_t: S is kept before each segment of 64 positions, and the S' of a segment are computed again.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "04_fused_chunk/simple_gla_backward.hpp"

namespace tutorial::simple_gla {
namespace {

constexpr int kSegment = 64;

using State = std::vector<double>;  // [Dk, Dv]

/// The state that a walk starts from: zeros if none is given.
State start_of(const FloatBackwardArguments& a, const View<const float>& start, int b, int h) {
  State S(std::size_t(a.Dk) * std::size_t(a.Dv));
  for (int d = 0; d < a.Dk && start.data; ++d) std::copy_n(start.row(b, h, d), a.Dv, &S[std::size_t(d) * a.Dv]);
  return S;
}

/// S *= exp(g_t).
void fade(const FloatBackwardArguments& a, State& S, int b, int h, int t) {
  const double gate = std::exp(double(*a.g.row(b, h, t)));
  for (double& x : S) x *= gate;
}

/// S += factor x^T y, x [Dk], y [Dv].
void add_outer(const FloatBackwardArguments& a, State& S, double factor, const float* x, const float* y) {
  for (int d = 0; d < a.Dk; ++d) {
    for (int j = 0; j < a.Dv; ++j) S[std::size_t(d) * a.Dv + j] += factor * double(x[d]) * double(y[j]);
  }
}

/// to = factor x S^T, x [Dv], to [Dk].
void read_transposed(const FloatBackwardArguments& a, float* to, double factor, const float* x, const State& S) {
  for (int d = 0; d < a.Dk; ++d) {
    double sum = 0;
    for (int j = 0; j < a.Dv; ++j) sum += S[std::size_t(d) * a.Dv + j] * double(x[j]);
    to[d] = float(factor * sum);
  }
}

/// Both walks of one head.
void walk(const FloatBackwardArguments& a, int b, int h) {
  std::vector<State> kept;  // before each segment
  State S = start_of(a, a.initial_state, b, h);
  for (int t = 0; t < a.L; ++t) {
    if (t % kSegment == 0) kept.push_back(S);
    fade(a, S, b, h, t);
    add_outer(a, S, 1, a.k.row(b, h, t), a.v.row(b, h, t));
    read_transposed(a, a.dq.row(b, h, t), a.scale, a.d_o.row(b, h, t), S);
  }

  State dS = start_of(a, a.dfinal_state, b, h);
  for (int end = a.L; end > 0; kept.pop_back()) {
    const int first = (end - 1) / kSegment * kSegment;
    std::vector<State> faded;  // S' of the segment
    S = kept.back();
    for (int t = first; t < end; ++t) {
      fade(a, S, b, h, t);
      faded.push_back(S);
      add_outer(a, S, 1, a.k.row(b, h, t), a.v.row(b, h, t));
    }
    for (int t = end - 1; t >= first; --t) {
      const State& before = faded[std::size_t(t - first)];
      add_outer(a, dS, a.scale, a.q.row(b, h, t), a.d_o.row(b, h, t));
      read_transposed(a, a.dk.row(b, h, t), 1, a.v.row(b, h, t), dS);
      double dg = 0;
      for (std::size_t i = 0; i < dS.size(); ++i) dg += before[i] * dS[i];
      *a.dg.row(b, h, t) = float(dg);
      for (int j = 0; j < a.Dv; ++j) {
        double sum = 0;
        for (int d = 0; d < a.Dk; ++d) sum += double(a.k.row(b, h, t)[d]) * dS[std::size_t(d) * a.Dv + j];
        a.dv.row(b, h, t)[j] = float(sum);
      }
      fade(a, dS, b, h, t);
    }
    end = first;
  }
  for (int d = 0; d < a.Dk && a.dinitial_state.data; ++d) {
    std::copy_n(&dS[std::size_t(d) * a.Dv], a.Dv, a.dinitial_state.row(b, h, d));
  }
}

}  // namespace

void reference_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walk(a, b, h);
  }
}

}  // namespace tutorial::simple_gla
