#pragma once
/// @file
/// Sequences of unequal lengths, packed one behind the other into one batch entry. No dependencies, so that .cu files can
/// include it.

#include <cstdint>

#include "common/view.hpp"

namespace tutorial {

/// The arguments of an operator on N packed sequences: sequence n has the positions from cu_seqlens[n] to
/// cu_seqlens[n + 1]. An empty sequence hands its initial state on.
/// @tparam Arguments of the operator
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
  const auto advance = [&](auto& view) { view.data += begin * view.stride_l; };
  advance(a.q), advance(a.k), advance(a.v), advance(a.o);
  if constexpr (requires { a.g; }) advance(a.g);
  if constexpr (requires { a.beta; }) advance(a.beta);
  const std::int64_t entry = std::int64_t(n) * a.B;  // of the states
  if (a.initial_state.data) a.initial_state.data += entry * a.initial_state.stride_b;
  if (a.final_state.data) a.final_state.data += entry * a.final_state.stride_b;
  return a;
}

}  // namespace tutorial
