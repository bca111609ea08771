#pragma once
/// @file
/// A device's part as the chapters' operators take it: the same tensors, nothing is copied.

#include "02_chunkwise/linear_attention.hpp"
#include "04_fused_chunk/simple_gla.hpp"
#include "05_deltanet_wy/delta_rule.hpp"
#include "06_scan/over_devices.hpp"

namespace tutorial::over_devices {

inline constexpr int kChunk = 64;  ///< unused: `dispatch` has a length of its own

/// The arguments of the `dispatch` of the rule's chapter, which is found in that chapter's namespace.
template <Rule kRule>
auto as_chapter(const Arguments& a) {
  if constexpr (kRule == Rule::linear_attention) {
    return linear_attention::Bf16Arguments{
        a.B, a.H, a.L, a.Dk, a.Dv, kChunk, a.scale, a.q, a.k, a.v, a.initial_state, a.o, a.final_state};
  }
  if constexpr (kRule == Rule::simple_gla) {
    return simple_gla::Bf16Arguments{
        a.B, a.H, a.L, a.Dk, a.Dv, kChunk, a.scale, a.q, a.k, a.v, a.g, a.initial_state, a.o, a.final_state};
  }
  if constexpr (kRule == Rule::delta_rule) {
    return delta_rule::Bf16Arguments{
        a.B, a.H, a.L, a.Dk, a.Dv, kChunk, a.scale, false, a.q, a.k, a.v, a.beta, a.initial_state, a.o, a.final_state};
  }
}

}  // namespace tutorial::over_devices
