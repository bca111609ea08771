/// @file
/// The normalised operator on the CPU: o_t = scale q_t S_t / (scale q_t . z_t + eps), z_t = z_{t-1} + k_t. It is
/// chapter 01's `causal_attention` with the feature map already applied to q and k.

#include <vector>

#include "02_chunkwise/normalized.hpp"

namespace tutorial::linear_attention {
namespace {

/// Walks one head at a time, position after position, with its S [Dk, Dv] and z [Dk]. Source: arXiv 2006.16236,
/// equations 18 to 20.
template <class Real>
void walk(const NormalizedFloatArguments& n) {
  const FloatArguments& a = n.attention;
  const std::size_t Dk = std::size_t(a.Dk), Dv = std::size_t(a.Dv);
#pragma omp parallel for collapse(2) schedule(dynamic)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      const std::size_t head = std::size_t(b) * std::size_t(a.H) + std::size_t(h);
      std::vector<Real> S(Dk * Dv), z(Dk), numerator(Dv);
      for (std::size_t d = 0; d < Dk; ++d) {
        if (n.normalizer.initial_z) z[d] = n.normalizer.initial_z[head * Dk + d];
        if (!a.initial_state.data) continue;
        const float* row = a.initial_state.row(b, h, std::int64_t(d));
        for (std::size_t j = 0; j < Dv; ++j) S[d * Dv + j] = row[j];
      }
      for (int t = 0; t < a.L; ++t) {
        const float *q = a.q.row(b, h, t), *k = a.k.row(b, h, t), *v = a.v.row(b, h, t);
        Real denominator = 0;
        numerator.assign(Dv, 0);
        for (std::size_t d = 0; d < Dk; ++d) {
          const Real q_d = Real(a.scale) * q[d], k_d = k[d];
          z[d] += k_d;
          denominator += q_d * z[d];
          for (std::size_t j = 0; j < Dv; ++j) {
            S[d * Dv + j] += k_d * v[j];
            numerator[j] += q_d * S[d * Dv + j];
          }
        }
        float* o = a.o.row(b, h, t);
        for (std::size_t j = 0; j < Dv; ++j) o[j] = float(numerator[j] / (denominator + Real(n.normalizer.eps)));
      }
      for (std::size_t d = 0; d < Dk; ++d) {
        if (n.normalizer.final_z) n.normalizer.final_z[head * Dk + d] = float(z[d]);
        if (!a.final_state.data) continue;
        float* row = a.final_state.row(b, h, std::int64_t(d));
        for (std::size_t j = 0; j < Dv; ++j) row[j] = float(S[d * Dv + j]);
      }
    }
  }
}

}  // namespace

void normalized_double(const NormalizedFloatArguments& n) {
  walk<double>(n);
}

void normalized_recurrent(const NormalizedFloatArguments& n) {
  walk<float>(n);
}

}  // namespace tutorial::linear_attention
