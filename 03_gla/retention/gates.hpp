#pragma once
/// @file
/// Expresses retention as gla: one row of g per head, which all of its positions share.

#include "03_gla/gla.hpp"
#include "03_gla/retention.hpp"

namespace tutorial::retention {

/// The same call of gla.
/// @param g [H, Dk]: a view with strides 0 for batch entries and positions repeats it
template <class T>
gla::Arguments<T> gated(const Arguments<T>& a, const float* g) {
  return {.B = a.B,
          .H = a.H,
          .L = a.L,
          .Dk = a.Dk,
          .Dv = a.Dv,
          .C = 64,
          .scale = a.scale,
          .q = a.q,
          .k = a.k,
          .v = a.v,
          .g = {g, 0, a.Dk, 0},
          .initial_state = a.initial_state,
          .o = a.o,
          .final_state = a.final_state};
}

}  // namespace tutorial::retention
