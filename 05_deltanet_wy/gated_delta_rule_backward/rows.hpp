#pragma once
/// @file
/// What both stages share: a head's tensors in double, keys of length 1 and their gradients, and dg.

#include "05_deltanet_wy/chunk/cpu_chunks.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule_backward.hpp"

namespace tutorial::gated_delta_rule {

using delta_rule::Matrix;
using delta_rule::Vector;

/// Of one (batch, head), all L positions.
struct Head {
  Matrix q, k, v, d_o;      ///< [L, Dk], [L, Dk], [L, Dv], [L, Dv]; k of length 1 if normalize_keys
  Vector beta, g, f;        ///< [L]; f are the keys' factors, 1 if not normalize_keys
  Matrix S0, dSL;           ///< [Dk, Dv]: the initial state and the gradient of the final one, or zeros
  Matrix dq, dk, dv;        ///< gradients, filled by a stage; dk with respect to the keys as they are in k
  Vector dbeta;             ///< [L], likewise
  Matrix dk_subtracted;     ///< [L, Dk]: the term dv_t S'_t^T that dk subtracts; for the reference
  Vector dbeta_subtracted;  ///< [L]: the term e_t . (k_t S'_t) that dbeta subtracts; for the reference

  Head(const FloatBackwardArguments& a, int b, int h)
      : q(delta_rule::read_rows(a.q, b, h, 0, a.L, a.Dk)),
        k(delta_rule::read_rows(a.k, b, h, 0, a.L, a.Dk)),
        v(delta_rule::read_rows(a.v, b, h, 0, a.L, a.Dv)),
        d_o(delta_rule::read_rows(a.d_o, b, h, 0, a.L, a.Dv)),
        beta(delta_rule::read_rows(a.beta, b, h, 0, a.L, 1)),
        g(delta_rule::read_rows(a.g, b, h, 0, a.L, 1)),
        f(Vector::Ones(a.L)),
        S0(Matrix::Zero(a.Dk, a.Dv)),
        dSL(Matrix::Zero(a.Dk, a.Dv)),
        dq(Matrix::Zero(a.L, a.Dk)),
        dk(Matrix::Zero(a.L, a.Dk)),
        dv(Matrix::Zero(a.L, a.Dv)),
        dbeta(Vector::Zero(a.L)),
        dk_subtracted(Matrix::Zero(a.L, a.Dk)),
        dbeta_subtracted(Vector::Zero(a.L)) {
    if (a.normalize_keys) {
      f = (k.rowwise().squaredNorm().array() + double(kKeyEps)).rsqrt();
      k = f.asDiagonal() * k;
    }
    if (a.initial_state.data) S0 = delta_rule::read_rows(a.initial_state, b, h, 0, a.Dk, a.Dv);
    if (a.dfinal_state.data) dSL = delta_rule::read_rows(a.dfinal_state, b, h, 0, a.Dk, a.Dv);
  }

  /// Writes the gradients. @param SL the final state @param dS0 the gradient of the initial one
  void write(const FloatBackwardArguments& a, int b, int h, const Matrix& SL, const Matrix& dS0) {
    Vector dg = q.cwiseProduct(dq).rowwise().sum() - v.cwiseProduct(dv).rowwise().sum();
    dg[dg.size() - 1] += SL.cwiseProduct(dSL).sum();
    for (Eigen::Index t = dg.size() - 1; t > 0; --t) dg[t - 1] += dg[t];
    if (a.normalize_keys) {
      const Vector along = dk.cwiseProduct(k).rowwise().sum();
      dk_subtracted = f.cwiseProduct(along).asDiagonal() * k;
      dk = f.asDiagonal() * dk - dk_subtracted;
    }
    delta_rule::write_rows(a.dq, b, h, 0, dq);
    delta_rule::write_rows(a.dk, b, h, 0, dk);
    delta_rule::write_rows(a.dv, b, h, 0, dv);
    delta_rule::write_rows(a.dbeta, b, h, 0, dbeta);
    delta_rule::write_rows(a.dg, b, h, 0, dg);
    if (a.dk_subtracted.data) delta_rule::write_rows(a.dk_subtracted, b, h, 0, dk_subtracted);
    if (a.dbeta_subtracted.data) delta_rule::write_rows(a.dbeta_subtracted, b, h, 0, dbeta_subtracted);
    if (a.dinitial_state.data) delta_rule::write_rows(a.dinitial_state, b, h, 0, dS0);
  }
};

/// Bytes of a Head.
inline std::int64_t head_memory(const FloatBackwardArguments& a) {
  return 8 * (std::int64_t(a.L) * (5 * a.Dk + 3 * a.Dv + 6) + 2 * std::int64_t(a.Dk) * a.Dv);
}

}  // namespace tutorial::gated_delta_rule
