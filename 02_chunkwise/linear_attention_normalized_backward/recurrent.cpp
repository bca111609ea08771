/// @file
/// The gradients of the normalised operator on the CPU, position after position: forwards for dq, backwards for dk and
/// dv. Between the passes it keeps two numbers per position, e_t and w_t (normalized_backward.hpp).

#include <cstddef>
#include <vector>

#include "02_chunkwise/normalized_backward.hpp"

namespace tutorial::linear_attention {
namespace {

/// Both passes of one head at a time.
template <class Real>
class Walk {
 public:
  explicit Walk(const NormalizedBackwardFloatArguments& n)
      : n_(n),
        a_(n.attention),
        Dk_(std::size_t(a_.Dk)),
        Dv_(std::size_t(a_.Dv)),
        S_(Dk_ * Dv_),
        z_(Dk_),
        numerator_(Dv_),
        e_(std::size_t(a_.L)),
        w_(std::size_t(a_.L)) {}

  void head(int b, int h) {
    start_from(a_.initial_state, n_.initial_z, b, h);
    for (int t = 0; t < a_.L; ++t) forwards(b, h, t);
    start_from(a_.dfinal_state, n_.dfinal_z, b, h);
    for (int t = a_.L - 1; t >= 0; --t) backwards(b, h, t);
    for (std::size_t d = 0; d < Dk_; ++d) {
      if (n_.dinitial_z) n_.dinitial_z[first_of_head(b, h) + d] = float(z_[d]);
      if (!a_.dinitial_state.data) continue;
      for (std::size_t j = 0; j < Dv_; ++j) {
        a_.dinitial_state.row(b, h, std::int64_t(d))[j] = float(S_[d * Dv_ + j]);
      }
    }
  }

 private:
  std::size_t first_of_head(int b, int h) const { return (std::size_t(b) * std::size_t(a_.H) + std::size_t(h)) * Dk_; }

  void start_from(const View<const float>& state, const float* z, int b, int h) {
    for (std::size_t d = 0; d < Dk_; ++d) {
      z_[d] = z ? z[first_of_head(b, h) + d] : 0;
      for (std::size_t j = 0; j < Dv_; ++j) {
        S_[d * Dv_ + j] = state.data ? state.row(b, h, std::int64_t(d))[j] : 0;
      }
    }
  }

  /// Computes dq and the two numbers that the second pass needs.
  void forwards(int b, int h, int t) {
    const float *q = a_.q.row(b, h, t), *k = a_.k.row(b, h, t), *v = a_.v.row(b, h, t), *d_o = a_.d_o.row(b, h, t);
    const Real scale = a_.scale;
    Real e = n_.eps, product = 0;
    numerator_.assign(Dv_, 0);
    for (std::size_t d = 0; d < Dk_; ++d) {
      z_[d] += k[d];
      e += scale * q[d] * z_[d];
      for (std::size_t j = 0; j < Dv_; ++j) {
        S_[d * Dv_ + j] += Real(k[d]) * v[j];
        numerator_[j] += scale * q[d] * S_[d * Dv_ + j];
      }
    }
    for (std::size_t j = 0; j < Dv_; ++j) product += d_o[j] * numerator_[j];
    const Real w = -product / (e * e);
    for (std::size_t d = 0; d < Dk_; ++d) {
      Real sum = 0;
      for (std::size_t j = 0; j < Dv_; ++j) sum += S_[d * Dv_ + j] * d_o[j];
      a_.dq.row(b, h, t)[d] = float(scale * (sum / e + w * z_[d]));
      if (n_.dq_subtracted.data) n_.dq_subtracted.row(b, h, t)[d] = float(scale * w * z_[d]);
    }
    e_[std::size_t(t)] = e;
    w_[std::size_t(t)] = w;
  }

  /// dk and dv.
  void backwards(int b, int h, int t) {
    const float *q = a_.q.row(b, h, t), *k = a_.k.row(b, h, t), *v = a_.v.row(b, h, t), *d_o = a_.d_o.row(b, h, t);
    const Real scale = a_.scale, e = e_[std::size_t(t)];
    std::vector<Real>& dv = numerator_;
    dv.assign(Dv_, 0);
    for (std::size_t d = 0; d < Dk_; ++d) {
      z_[d] += scale * w_[std::size_t(t)] * q[d];
      Real sum = z_[d];
      for (std::size_t j = 0; j < Dv_; ++j) {
        S_[d * Dv_ + j] += scale * q[d] * (d_o[j] / e);
        sum += S_[d * Dv_ + j] * v[j];
        dv[j] += S_[d * Dv_ + j] * k[d];
      }
      a_.dk.row(b, h, t)[d] = float(sum);
      if (n_.dk_subtracted.data) n_.dk_subtracted.row(b, h, t)[d] = float(z_[d]);
    }
    for (std::size_t j = 0; j < Dv_; ++j) a_.dv.row(b, h, t)[j] = float(dv[j]);
  }

  const NormalizedBackwardFloatArguments& n_;
  const FloatBackwardArguments& a_;
  const std::size_t Dk_, Dv_;
  std::vector<Real> S_, z_;  // forwards S and z, backwards dS and dz
  std::vector<Real> numerator_;
  std::vector<Real> e_, w_;  // one per position
};

template <class Real>
void walk_all(const NormalizedBackwardFloatArguments& n) {
#pragma omp parallel
  {
    Walk<Real> walk(n);
#pragma omp for collapse(2) schedule(dynamic)
    for (int b = 0; b < n.attention.B; ++b) {
      for (int h = 0; h < n.attention.H; ++h) walk.head(b, h);
    }
  }
}

}  // namespace

void normalized_double_backward(const NormalizedBackwardFloatArguments& n) {
  walk_all<double>(n);
}

void normalized_recurrent_backward(const NormalizedBackwardFloatArguments& n) {
  walk_all<float>(n);
}

}  // namespace tutorial::linear_attention
