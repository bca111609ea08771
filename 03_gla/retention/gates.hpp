#pragma once
/// @file
/// Expresses retention as gla: one row of g per head, which all of its positions share.

#include <cmath>

#include "03_gla/gla.hpp"
#include "03_gla/retention.hpp"

namespace tutorial::retention {

/// The natural logarithm of the head's gate, log(1 - 2^(-5-h)), h from 0 on. (From h = 20 on 1 - 2^(-5-h) itself is 1
/// in fp32.)
inline float log_gate(int h) {
  return float(std::log1p(-std::exp2(-5.0 - h)));
}

/// The same call of gla.
/// @param g [H, Dk]: a view with strides 0 for batch entries and positions repeats it
template <class T>
gla::Arguments<T> gated(const Arguments<T>& a, const float* g) {
  return {.B = a.B,
          .H = a.H,
          .L = a.L,
          .Dk = a.Dk,
          .Dv = a.Dv,
          .C = a.C,
          .scale = a.scale,
          .q = a.q,
          .k = a.k,
          .v = a.v,
          .g = {g, 0, a.Dk, 0},
          .initial_state = a.initial_state,
          .o = a.o,
          .final_state = a.final_state};
}

/// Bytes of such a table.
inline std::int64_t table_bytes(int H, int Dk) {
  return std::int64_t(sizeof(float)) * H * Dk;
}

}  // namespace tutorial::retention
