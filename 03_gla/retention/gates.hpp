#pragma once
/// @file
/// What makes gla of retention: one row of gates a head, which all of its positions share.

#include <cmath>

#include "03_gla/gla.hpp"
#include "03_gla/retention.hpp"

namespace tutorial::retention {

/// The natural logarithm of the head's decay, log(1 - 2^(-5-h)), h from 0 on. (From h = 20 on
/// 1 - 2^(-5-h) itself is 1 in fp32.)
inline float log_gate(int h) {
  return float(std::log1p(-std::exp2(-5.0 - h)));
}

/// The same call of gla. @param gates [H, Dk]: a view whose strides of batch entries and positions are zero repeats it
template <class T>
gla::Arguments<T> gated(const Arguments<T>& a, const float* gates) {
  return {a.B, a.H,          a.L, a.Dk, a.Dv, a.C, a.scale, a.q, a.k, a.v, {gates, 0, a.Dk, 0}, a.initial_state,
          a.o, a.final_state};
}

}  // namespace tutorial::retention
