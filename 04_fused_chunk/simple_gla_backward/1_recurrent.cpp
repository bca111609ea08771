/// @file
/// Stage 1, `recurrent`: chapter 02's two passes with a gate, and the gradient of the gate from what they compute.
///
/// Idea: the gate of position t multiplies the whole state, so its gradient is the sum over all products of exp(g_t)
/// S_{t-1} and dS_t, which takes both states at the same time. But S comes from the beginning and dS from the end. To
/// have them together one would store L states. The sum <S_t, dS_t> can be written in two ways, with what position t
/// reads and with what it writes, and neither needs a state that the other pass has:
///
///     <S_t, dS_t> = q_t . dq_t + dg_{t+1}        dS_t is scale q_t^T do_t, and what comes through the gate of t + 1
///     <S_t, dS_t> = k_t . dk_t + dg_t            S_t is k_t^T v_t, and what comes through the gate of t
///
/// So dg is a running sum from the end, of one number per position. Both products contain the pair of position t with
/// itself, which passes no gate, and the sum begins with what position L writes to the final state, which passes none
/// either. Where gates are strong, these would be far larger than dg and would have to cancel. So they are left out.
/// Grows out of: 02_chunkwise/linear_attention_backward/1_recurrent.cpp
/// Unchanged: two passes, one state at a time.
/// Equation:
///
///   S_t  = exp(g_t) S_{t-1} + k_t^T v_t    dq_t = scale do_t S_t^T                     t = 1 ... L
///   dS_t = exp(g_{t+1}) dS_{t+1} + scale q_t^T do_t    dk_t = v_t dS_t^T    dv_t = k_t dS_t    t = L ... 1
///          dS_L has dfinal_state in the place of the first term,   dinitial_state = exp(g_1) dS_1
///   dg_t = dg_{t+1} + q_t . dq'_t - k_t . dk'_t,  ' without the pair (t, t);   k_L . dk'_L counts as 0
///          dg_{L+1} = <exp(g_L) S_{L-1}, dfinal_state>
///
/// Shapes: q, k, dq, dk [B, H, L, Dk]; v, do, dv [B, H, L, Dv]; g, dg [B, H, L]; S, dS and their like [Dk, Dv]; all in
/// host memory. The stage computes in fp32, sums for dg in double.
/// Thread mapping: one thread per head.
/// Resources: one state of Dk Dv numbers per thread, S and then dS, and L numbers q_t . dq_t.
/// Work: as without gates, 5 Dk Dv multiply-adds per position, and 2 Dk Dv multiplications by gates.
/// Bytes: k, v, g and do twice, q and each gradient once. The state is read and written at every position, in the
/// cache.
/// Bound by: the cores' arithmetic, one position after the other.
/// Requires: nothing.
/// Weakness: the steps are sequential, and none is a matrix product. `chunkwise` makes them products.
/// Sources: arXiv 2312.06635, section 4.3; arXiv 2006.16236, equations 13 to 15.

#include <cmath>
#include <cstddef>
#include <numeric>
#include <vector>

#include "04_fused_chunk/simple_gla_backward.hpp"

namespace tutorial::simple_gla {
namespace {

/// The state [Dk, Dv] that a walk starts from: zeros if none is given.
std::vector<float> start_of(const FloatBackwardArguments& a, const View<const float>& start, int b, int h) {
  std::vector<float> S(std::size_t(a.Dk) * std::size_t(a.Dv));
  for (int d = 0; d < a.Dk && start.data; ++d) {
    for (int j = 0; j < a.Dv; ++j) S[std::size_t(d) * std::size_t(a.Dv) + std::size_t(j)] = start.row(b, h, d)[j];
  }
  return S;
}

/// Both passes of one head.
void walk(const FloatBackwardArguments& a, int b, int h) {
  const auto Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
  const float scale = a.scale;
  std::vector<float> S = start_of(a, a.initial_state, b, h);
  std::vector<double> read(std::size_t(a.L));  // q_t . dq'_t
  for (int t = 0; t < a.L; ++t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    const float gate = std::exp(*a.g.row(b, h, t)), own = scale * std::inner_product(v, v + Dv, d_o, 0.0f);
    const float writes = t + 1 < a.L ? 1 : 0;  // for dg, S_L without what has passed no gate
    for (std::size_t d = 0; d < Dk; ++d) {
      float sum = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        S[d * Dv + j] *= gate;
        sum += S[d * Dv + j] * d_o[j];
        S[d * Dv + j] += writes * k[d] * v[j];
      }
      a.dq.row(b, h, t)[d] = scale * sum + own * k[d];
      read[std::size_t(t)] += double(q[d]) * double(scale * sum);
    }
  }
  std::vector<float> dS = start_of(a, a.dfinal_state, b, h), dv(Dv);
  double dg = 0;
  for (std::size_t i = 0; i < S.size(); ++i) dg += double(S[i]) * double(dS[i]);
  for (int t = a.L - 1; t >= 0; --t) {
    const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t), *d_o = a.d_o.row(b, h, t);
    const float gate = std::exp(*a.g.row(b, h, t)), own = scale * std::inner_product(v, v + Dv, d_o, 0.0f);
    double written = 0;  // k_t . dk'_t
    dv.assign(Dv, 0);
    for (std::size_t d = 0; d < Dk; ++d) {
      float sum = 0;
      for (std::size_t j = 0; j < Dv; ++j) {
        sum += dS[d * Dv + j] * v[j];
        dS[d * Dv + j] += scale * q[d] * d_o[j];
        dv[j] += dS[d * Dv + j] * k[d];
        dS[d * Dv + j] *= gate;
      }
      a.dk.row(b, h, t)[d] = sum + own * q[d];
      if (t + 1 < a.L) written += double(k[d]) * double(sum);
    }
    for (std::size_t j = 0; j < Dv; ++j) a.dv.row(b, h, t)[j] = dv[j];
    dg += read[std::size_t(t)] - written;
    *a.dg.row(b, h, t) = float(dg);
  }
  for (std::size_t d = 0; d < Dk && a.dinitial_state.data; ++d) {
    for (std::size_t j = 0; j < Dv; ++j) a.dinitial_state.row(b, h, std::int64_t(d))[j] = dS[d * Dv + j];
  }
}

}  // namespace

void recurrent_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walk(a, b, h);
  }
}

}  // namespace tutorial::simple_gla
