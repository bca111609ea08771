#pragma once
/// @file
/// The arguments of `decode` as the chapters' operators take them: the same tensors, nothing is copied.

#include "02_chunkwise/normalized.hpp"
#include "03_gla/gla.hpp"
#include "04_fused_chunk/simple_gla.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "05_deltanet_wy/gated_delta_rule.hpp"
#include "05_deltanet_wy/kda.hpp"
#include "06_scan/decode.hpp"

namespace tutorial::decode {

inline constexpr int kChunk = 64;  // unused: the chapters' stages called here have a length of their own, or none

/// The arguments of chapter 04's stages.
template <class T>
simple_gla::Arguments<T> as_simple_gla(const Arguments<T>& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, kChunk, a.scale, a.q, a.k, a.v, a.g, a.initial_state, a.o, a.final_state};
}

/// The arguments of chapter 03's stages.
template <class T>
gla::Arguments<T> as_gla(const Arguments<T>& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, kChunk, a.scale, a.q, a.k, a.v, a.g, a.initial_state, a.o, a.final_state};
}

/// The arguments of chapter 05's stages.
template <class T>
delta_rule::Arguments<T> as_delta_rule(const Arguments<T>& a) {
  return {a.B, a.H,          a.L, a.Dk, a.Dv, kChunk, a.scale, false, a.q, a.k, a.v, a.beta, a.initial_state,
          a.o, a.final_state};
}

/// The arguments of chapter 05's stages with gates.
template <class T>
gated_delta_rule::Arguments<T> as_gated_delta_rule(const Arguments<T>& a) {
  return {as_delta_rule(a), a.g};
}

/// The arguments of chapter 05's stages with a gate for each row of the state.
template <class T>
kda::Arguments<T> as_kda(const Arguments<T>& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv,   kChunk,          a.scale, false,
          a.q, a.k, a.v, a.g,  a.beta, a.initial_state, a.o,     a.final_state};
}

/// The arguments of chapter 02's stages with a normaliser.
/// @param phi_q [B, H, L, Dk], packed; null where only sizes are of interest
/// @param phi_k likewise
template <class T>
linear_attention::NormalizedBy<T> as_normalized(const Arguments<T>& a, const T* phi_q, const T* phi_k) {
  return {{a.B, a.H, a.L, a.Dk, a.Dv, kChunk, a.scale, packed(phi_q, a.H, a.L, a.Dk), packed(phi_k, a.H, a.L, a.Dk),
           a.v, a.initial_state, a.o, a.final_state},
          {a.initial_z, a.final_z, a.eps, nullptr}};
}

/// The problem in the form of the rule's chapter, whose functions are found in its namespace. (Of the normalised form
/// the sizes: its features have to be computed.)
template <Rule kRule, class T>
auto as_chapter(const Arguments<T>& a) {
  if constexpr (kRule == Rule::simple_gla) return as_simple_gla(a);
  if constexpr (kRule == Rule::gla) return as_gla(a);
  if constexpr (kRule == Rule::delta_rule) return as_delta_rule(a);
  if constexpr (kRule == Rule::gated_delta_rule) return as_gated_delta_rule(a);
  if constexpr (kRule == Rule::kda) return as_kda(a);
  if constexpr (kRule == Rule::normalized) return as_normalized<T>(a, nullptr, nullptr);
}

/// The first P tokens alone.
template <class T>
Arguments<T> prompt_of(Arguments<T> a) {
  a.L = a.P;
  return a;
}

}  // namespace tutorial::decode
