/// @file
/// `recurrent`: the recurrences of the earlier chapters, without a new loop.
///
/// Idea: decoding must compute what the recurrence computes. The recurrence is the definition for tokens that come one
/// at a time.
/// Grows out of: nothing
/// Equation: that of `recurrent` of the operators simple_gla (chapter 04), gla (03), delta_rule, gated_delta_rule and
/// kda (05). The normalised form is that of chapter 01, computed by chapter 02's operator, which keeps S and z from
/// call to call and takes features instead of q and k. The features are computed here.
/// Shapes: as in decode.hpp, fp32 in host memory; with the normalised form phi(q) and phi(k) [B, H, L, Dk].
/// Thread mapping: OpenMP gives each thread one head at a time. Everything but phi is computed in double because this
/// stage is also the reference for all others.
/// Resources: S, 8 Dk Dv bytes per thread.
/// Work: 4 to 7 operations per token and element of the state.
/// Bytes: inputs and outputs once.
/// Bound by: the cores' arithmetic.
/// Weakness: it is on the CPU.
/// Sources: arXiv 2006.16236, equations 16 to 20, and those of the chapters.

#include <cstddef>
#include <vector>

#include "06_scan/decode.hpp"
#include "06_scan/decode/chapters.hpp"
#include "common/feature_map.hpp"

namespace tutorial::decode {
namespace {

/// phi of [B, H, L, Dk], packed; zeros from key_lengths[b] on.
/// @param key_lengths [B], or null
std::vector<float> features(const FloatArguments& a, const View<const float>& x, const int* key_lengths) {
  std::vector<float> result(std::size_t(a.B) * std::size_t(a.H) * std::size_t(a.L) * std::size_t(a.Dk));
#pragma omp parallel for collapse(2)
  for (int b = 0; b < a.B; ++b) {
    for (int h = 0; h < a.H; ++h) {
      float* row = &result[(std::size_t(b) * std::size_t(a.H) + std::size_t(h)) * std::size_t(a.L) * std::size_t(a.Dk)];
      for (int t = 0; t < a.L; ++t, row += a.Dk) {
        for (int d = 0; d < a.Dk && (!key_lengths || t < key_lengths[b]); ++d) {
          row[d] = float(phi(double(x.row(b, h, t)[d])));
        }
      }
    }
  }
  return result;
}

}  // namespace

template <Rule kRule>
void recurrent(const FloatArguments& a) {
  if constexpr (kRule != Rule::normalized) {
    recurrent(as_chapter<kRule>(a));
  } else {
    const std::vector<float> phi_q = features(a, a.q, nullptr), phi_k = features(a, a.k, a.key_lengths);
    linear_attention::normalized_double(as_normalized(a, phi_q.data(), phi_k.data()));
  }
}

TUTORIAL_DECODE_WITH_ALL_RULES(recurrent, FloatArguments);

}  // namespace tutorial::decode
