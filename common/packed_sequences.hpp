#pragma once
/// @file
/// Sequences of unequal lengths, packed one behind the other into one batch entry. No dependencies, so that .cu files can
/// include it.

#include <cstdint>

#include "common/view.hpp"

namespace tutorial {

/// The arguments of an operator on N packed sequences, or of its gradients: sequence n has the positions from
/// cu_seqlens[n] to cu_seqlens[n + 1]. An empty sequence hands its initial state on, and the gradient of its final state.
/// @tparam Arguments of the operator, or of its gradients
template <class Arguments>
struct PackedSequences {
  /// L is the sum of the lengths, and B is 1, or the number of groups of heads that share their keys. States are
  /// [N, B, H, Dk, Dv] with a step of B entries from sequence to sequence.
  Arguments all;
  const std::int32_t* cu_seqlens;  ///< [N + 1], where q is; 0 first, L last, never falling
  int N;

  static PackedSequences bind(const Call& call);  ///< a call of the runner
};

/// The arguments of sequence n alone.
/// @param begin,length its positions
template <class Arguments>
TUTORIAL_HOST_DEVICE Arguments sequence_of(Arguments a, int n, int begin, int length) {
  a.L = length;
  const auto to_position = [=](auto&... views) { ((views.data += begin * views.stride_l), ...); };
  const auto to_entry = [entry = std::int64_t(n) * a.B](auto&... views) {
    ((views.data = views.data ? views.data + entry * views.stride_b : nullptr), ...);
  };
  to_position(a.q, a.k, a.v);
  to_entry(a.initial_state);
  if constexpr (requires { a.g; }) to_position(a.g);
  if constexpr (requires { a.beta; }) to_position(a.beta);
  if constexpr (requires { a.d_o; }) {
    to_position(a.d_o, a.dq, a.dk, a.dv);
    to_entry(a.dfinal_state, a.dinitial_state);
    if constexpr (requires { a.dg; }) to_position(a.dg);
    if constexpr (requires { a.dbeta; }) to_position(a.dbeta);
  } else {
    to_position(a.o);
    to_entry(a.final_state);
  }
  return a;
}

}  // namespace tutorial
