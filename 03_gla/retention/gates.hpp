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
  constexpr int kChunk = 64;  // unused: dispatch has a length of its own
  return {a.B, a.H,          a.L, a.Dk, a.Dv, kChunk, a.scale, a.q, a.k, a.v, {g, 0, a.Dk, 0}, a.initial_state,
          a.o, a.final_state};
}

}  // namespace tutorial::retention
