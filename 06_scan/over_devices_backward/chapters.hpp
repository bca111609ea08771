#pragma once
/// @file
/// A device's part as the gradients of the chapters' operators take it, and its forward problem: nothing is copied.

#include "02_chunkwise/linear_attention_backward.hpp"
#include "04_fused_chunk/simple_gla_backward.hpp"
#include "05_deltanet_wy/delta_rule_backward.hpp"
#include "06_scan/over_devices/chapters.hpp"
#include "06_scan/over_devices_backward.hpp"

namespace tutorial::over_devices {

/// The arguments of `dispatch_backward` of the rule's chapter, which is found in that chapter's namespace.
template <Rule kRule>
auto as_chapter(const BackwardArguments& a) {
  if constexpr (kRule == Rule::linear_attention) {
    return linear_attention::Bf16BackwardArguments{a.B,
                                                   a.H,
                                                   a.L,
                                                   a.Dk,
                                                   a.Dv,
                                                   kChunk,
                                                   a.scale,
                                                   a.q,
                                                   a.k,
                                                   a.v,
                                                   a.initial_state,
                                                   a.d_o,
                                                   a.dfinal_state,
                                                   a.dq,
                                                   a.dk,
                                                   a.dv,
                                                   a.dinitial_state};
  }
  if constexpr (kRule == Rule::simple_gla) {
    return simple_gla::Bf16BackwardArguments{a.B,
                                             a.H,
                                             a.L,
                                             a.Dk,
                                             a.Dv,
                                             kChunk,
                                             a.scale,
                                             a.q,
                                             a.k,
                                             a.v,
                                             a.g,
                                             a.initial_state,
                                             a.d_o,
                                             a.dfinal_state,
                                             a.dq,
                                             a.dk,
                                             a.dv,
                                             a.dg,
                                             a.dinitial_state};
  }
  if constexpr (kRule == Rule::delta_rule) {
    constexpr View<float> kNone{};
    return delta_rule::Bf16BackwardArguments{a.B,
                                             a.H,
                                             a.L,
                                             a.Dk,
                                             a.Dv,
                                             kChunk,
                                             a.scale,
                                             false,
                                             a.q,
                                             a.k,
                                             a.v,
                                             a.beta,
                                             a.initial_state,
                                             a.d_o,
                                             a.dfinal_state,
                                             a.dq,
                                             a.dk,
                                             a.dv,
                                             a.dbeta,
                                             a.dinitial_state,
                                             kNone,
                                             kNone};
  }
}

}  // namespace tutorial::over_devices
