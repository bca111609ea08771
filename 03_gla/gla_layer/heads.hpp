#pragma once
/// @file
/// What the layer passes to gla: matrices [B L, H D] as [B, H, L, D].

#include "03_gla/gla.hpp"
#include "03_gla/gla_layer.hpp"

namespace tutorial::gla_layer {

/// The heads of a packed matrix [B L, H D], which lie side by side in each row. Nothing is copied: the view uses
/// strides.
template <class T>
View<T> heads(T* matrix, std::int64_t H, std::int64_t L, std::int64_t D) {
  return {matrix, L * H * D, D, H * D};
}

/// The call of gla inside the layer. The state starts from zeros, and the final state is not wanted.
/// @param q,k,g [B L, H Dk]
/// @param v,o [B L, H Dv]
template <class T>
gla::Arguments<T> attention(const Arguments<T>& a, const T* q, const T* k, const T* v, const float* g, T* o) {
  constexpr int kChunk = 64;  // of the CPU stage
  return {.B = a.B,
          .H = a.H,
          .L = a.L,
          .Dk = a.Dk,
          .Dv = a.Dv,
          .C = kChunk,
          .scale = a.scale,
          .q = heads(q, a.H, a.L, a.Dk),
          .k = heads(k, a.H, a.L, a.Dk),
          .v = heads(v, a.H, a.L, a.Dv),
          .g = heads(g, a.H, a.L, a.Dk),
          .initial_state = {},
          .o = heads(o, a.H, a.L, a.Dv),
          .final_state = {}};
}

/// The same before there are tensors, for ..._unsupported, notes and memory.
template <class T>
gla::Arguments<T> attention(const Arguments<T>& a) {
  return attention<T>(a, nullptr, nullptr, nullptr, nullptr, nullptr);
}

}  // namespace tutorial::gla_layer
