#pragma once
/// @file
/// The feature map that takes the place of softmax's exponential.

#include <cmath>

#include "common/view.hpp"

namespace tutorial {

/// phi(x) = elu(x) + 1: positive, so that the normaliser is, too (arXiv 2006.16236, equation 7).
/// Below zero elu(x) + 1 = (exp(x) - 1) + 1. Computed in that order it loses the digits of a small exp(x): at x = -12
/// fp32 keeps two of seven. So it is exp(x) there.
template <class Real>
TUTORIAL_HOST_DEVICE Real phi(Real x) {
  return x > Real(0) ? x + Real(1) : std::exp(x);
}

/// Its derivative: 1 above zero, exp(x) below; both are 1 at zero.
template <class Real>
TUTORIAL_HOST_DEVICE Real dphi(Real x) {
  return x > Real(0) ? Real(1) : std::exp(x);
}

}  // namespace tutorial
