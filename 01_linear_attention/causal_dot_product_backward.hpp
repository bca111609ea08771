#pragma once
/// @file
/// The gradients of causal_dot_product, and one declaration per stage. Symbols, memory, errors and requirements are as in
/// causal_dot_product.hpp.

#include <string>

#include "common/view.hpp"

namespace tutorial {

/// The gradients of causal_dot_product with respect to its inputs, given the gradient of o. They are computed from the
/// inputs alone.
namespace causal_dot_product_backward {

/// The arguments of a stage: sizes, and views of the inputs, of do and of the gradients.
struct Arguments {
  int B, H, L, Dk, Dv;
  View<const float> q;    ///< [B, H, L, Dk]
  View<const float> k;    ///< [B, H, L, Dk]
  View<const float> v;    ///< [B, H, L, Dv]
  View<const float> d_o;  ///< do [B, H, L, Dv], the gradient of o
  View<float> dq;         ///< [B, H, L, Dk]
  View<float> dk;         ///< [B, H, L, Dk]
  View<float> dv;         ///< [B, H, L, Dv]

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

// On the CPU.
void recurrent(const Arguments&);         ///< the state from the start, its adjoint from the end; one thread
void recurrent_double(const Arguments&);  ///< the same in double: the reference for long sequences
void quadratic_double(const Arguments&);  ///< through the masked score matrix and its gradient, O(L^2): the reference

// On the GPU, fp32: three products of the same kind, two of them with time reversed.
void lmha(const Arguments&);      ///< by causal_dot_product's kernel of that name
void dispatch(const Arguments&);  ///< what a user calls: all at once

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string lmha_unsupported(const Arguments&);
std::string dispatch_unsupported(const Arguments&);
/// The kernels that dispatch chooses on this GPU, as text for the report.
std::string dispatch_note(const Arguments&);

}  // namespace causal_dot_product_backward

}  // namespace tutorial
