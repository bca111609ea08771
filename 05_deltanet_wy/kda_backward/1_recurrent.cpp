/// @file
/// `recurrent`: the gradients position after position, without storing a state.
///
/// Idea: three walks. The first goes forwards with S. It computes dq and keeps r_t, what is wrong with the state's
/// answers. The second goes backwards with dS, whose step needs no state: the operator is linear in v and S_0, so its
/// adjoint is a recurrence of the same kind. It computes dv, dbeta, and the part of dk that is due to the write. The
/// third goes forwards once more, for the part of dk that is due to the read. dg_t is the product of a state with a
/// gradient of a state, of the same position, which no walk has at once. But multiply the lines of a step by R_t, S_t
/// and dS_t, and add up their rows: what dg loses and gains from position to position is products of rows that are
/// there.
///
///     dg_t = dg_{t+1} + q_t . dq_t + k_t . (dk_t due to the read - dk_t due to the write)
///     dg_{L+1} = the sums over the rows of dfinal_state . S_L
///
/// No gate is divided by. Where one is 0, dg_t is 0, too: there the sum cancels, up to its rounding errors.
/// Grows out of: 05_deltanet_wy/kda/1_recurrent.cpp
/// Improves on: nothing yet computes gradients.
/// Unchanged: the step of the operator.
/// Equation:
///
///     R_t = diag(exp(g_t)) S_{t-1},   r_t = v_t - k_t R_t,   S_t = R_t + beta_t k_t^T r_t             t = 1 ... L
///     dq_t = scale do_t S_t^T
///
///     dS_t += scale q_t^T do_t,   dv_t = beta_t k_t dS_t,   dbeta_t = (k_t dS_t) . r_t               t = L ... 1
///     write_t = beta_t r_t dS_t^T,   dS_{t-1} = diag(exp(g_t)) (dS_t - k_t^T dv_t)
///
///     read_t = -dv_t R_t^T,   dk_t = read_t + write_t                                                t = 1 ... L
///
/// Shapes: q, k, g, dq, dk, dg [B, H, L, Dk]; v, do, dv [B, H, L, Dv]; beta, dbeta [B, H, L]; S, dS [Dk, Dv]; fp32 in
/// host memory. The walks compute in double, because this stage is the reference of all others.
/// Thread mapping: OpenMP gives each thread one head at a time.
/// Resources: a state, 5 L rows of Dk and 3 L rows of Dv in double per thread.
/// Work: 3, 4 and 3 Dk Dv multiply-adds per position in the three walks, and 3 Dk exponentials.
/// Bytes: k and g three times, q, v, beta and do once or twice, each gradient once.
/// Bound by: the cores' arithmetic, one position after the other.
/// Requires: what `recurrent` of the operator requires.
/// Weakness: 3 L dependent steps, and none is a matrix product. `chunkwise` has products.
/// Sources: arXiv 2510.26692, equation 1, and its adjoint; the sum for dg: arXiv 2312.06635, section 4.3 and appendix,
/// for gla.

#include "05_deltanet_wy/chunk/cpu_chunks.hpp"
#include "05_deltanet_wy/kda_backward.hpp"
#include "common/parallel.hpp"

namespace tutorial::kda {
namespace {

using delta_rule::Matrix, delta_rule::Vector, delta_rule::read_rows, delta_rule::write_rows;

constexpr float kKeyEps = delta_rule::kKeyEps;

/// A state [Dk, Dv] of a head; zeros if none is given.
Matrix start_of(const FloatBackwardArguments& a, const View<const float>& state, int b, int h) {
  return state.data ? read_rows(state, b, h, 0, a.Dk, a.Dv) : Matrix::Zero(a.Dk, a.Dv);
}

/// The three walks of one (batch, head).
void walks(const FloatBackwardArguments& a, int b, int h) {
  const int L = a.L;
  const Matrix q = double(a.scale) * read_rows(a.q, b, h, 0, L, a.Dk), d_o = read_rows(a.d_o, b, h, 0, L, a.Dv);
  const Matrix gates = read_rows(a.g, b, h, 0, L, a.Dk).array().exp(), beta = read_rows(a.beta, b, h, 0, L, 1);
  Matrix k = read_rows(a.k, b, h, 0, L, a.Dk), r = read_rows(a.v, b, h, 0, L, a.Dv);
  Vector factors = Vector::Ones(L);
  if (a.normalize_keys) factors = (k.rowwise().squaredNorm().array() + double(kKeyEps)).rsqrt();
  k = factors.asDiagonal() * k;
  Matrix dq(L, a.Dk), write(L, a.Dk), read(L, a.Dk), dv(L, a.Dv), dbeta(L, 1), dbeta_subtracted(L, 1);

  Matrix S = start_of(a, a.initial_state, b, h);
  for (int t = 0; t < L; ++t) {
    S = gates.row(t).asDiagonal() * S;
    r.row(t) -= k.row(t) * S;
    S += k.row(t).transpose() * (beta(t, 0) * r.row(t));
    dq.row(t) = double(a.scale) * d_o.row(t) * S.transpose();
  }

  Matrix dS = start_of(a, a.dfinal_state, b, h);
  const Vector after_end = (dS.array() * S.array()).rowwise().sum();
  for (int t = L - 1; t >= 0; --t) {
    dS += q.row(t).transpose() * d_o.row(t);
    const Matrix answer = k.row(t) * dS;
    dbeta(t, 0) = answer.row(0).dot(r.row(t));
    dbeta_subtracted(t, 0) = answer.row(0).dot(read_rows(a.v, b, h, t, 1, a.Dv).row(0)) - dbeta(t, 0);
    dv.row(t) = beta(t, 0) * answer;
    write.row(t) = beta(t, 0) * r.row(t) * dS.transpose();
    dS -= k.row(t).transpose() * dv.row(t);
    dS = gates.row(t).asDiagonal() * dS;
  }

  S = start_of(a, a.initial_state, b, h);
  for (int t = 0; t < L; ++t) {
    S = gates.row(t).asDiagonal() * S;
    read.row(t) = -dv.row(t) * S.transpose();
    S += k.row(t).transpose() * (beta(t, 0) * r.row(t));
  }

  Matrix dg = read_rows(a.q, b, h, 0, L, a.Dk).cwiseProduct(dq) + k.cwiseProduct(read - write);
  dg.row(L - 1) += after_end.transpose();
  for (int t = L - 2; t >= 0; --t) dg.row(t) += dg.row(t + 1);
  Matrix dk = read + write, dk_subtracted = -read;
  if (a.normalize_keys) {
    const Vector along = (dk.array() * k.array()).rowwise().sum();
    dk_subtracted = factors.cwiseProduct(along).asDiagonal() * k;
    dk = factors.asDiagonal() * dk - dk_subtracted;
  }
  write_rows(a.dq, b, h, 0, dq);
  write_rows(a.dk, b, h, 0, dk);
  write_rows(a.dv, b, h, 0, dv);
  write_rows(a.dg, b, h, 0, dg);
  write_rows(a.dbeta, b, h, 0, dbeta);
  if (a.dk_subtracted.data) write_rows(a.dk_subtracted, b, h, 0, dk_subtracted);
  if (a.dbeta_subtracted.data) write_rows(a.dbeta_subtracted, b, h, 0, dbeta_subtracted);
  if (a.dinitial_state.data) write_rows(a.dinitial_state, b, h, 0, dS);
}

}  // namespace

void recurrent_backward(const FloatBackwardArguments& a) {
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) walks(a, b, h);
  }
}

std::int64_t recurrent_backward_memory(const FloatBackwardArguments& a) {
  const std::int64_t L = a.L, Dk = a.Dk, Dv = a.Dv;
  return 8 * (L * (10 * Dk + 4 * Dv + 4) + 2 * Dk * Dv) * processor_count();
}

}  // namespace tutorial::kda
