#pragma once
/// @file
/// The gradients of causal_dot_product as three products of the same kind:
///
///   dq_t = sum_{i<=t} (do_t . v_i) k_i      queries do, keys v, values k
///   dk_i = sum_{t>=i} (v_i . do_t) q_t      queries v, keys do, values q, from the end
///   dv_i = sum_{t>=i} (k_i . q_t) do_t      queries k, keys q, values do, from the end
///
/// The direction of a walk is the sign of a stride: a view whose stride over time is negative reads a sequence from its
/// end. So the kernels of the operator compute its gradients without any change. fast-transformers compiles its kernel
/// a second time for this, with the direction as a template parameter.

#include <array>

#include "01_linear_attention/causal_dot_product.hpp"
#include "01_linear_attention/causal_dot_product_backward.hpp"

namespace tutorial::causal_dot_product_backward {

using Product = causal_dot_product::Arguments;  ///< one of the three walks

/// The same tensor with its positions in the opposite order.
template <class T>
View<T> from_end(const View<T>& view, int L) {
  return {view.row(0, 0, L - 1), view.stride_b, view.stride_h, -view.stride_l};
}

/// dq: a state of Dv rows and Dk columns.
inline Product dq_walk(const Arguments& a) {
  return {a.B, a.H, a.L, a.Dv, a.Dk, a.d_o, a.v, a.k, a.dq};
}

/// dk, with positions from the end: Dv rows and Dk columns, too.
inline Product dk_walk(const Arguments& a) {
  return {a.B, a.H, a.L, a.Dv, a.Dk, from_end(a.v, a.L), from_end(a.d_o, a.L), from_end(a.q, a.L), from_end(a.dk, a.L)};
}

/// dv, with positions from the end: Dk rows and Dv columns.
inline Product dv_walk(const Arguments& a) {
  return {a.B, a.H, a.L, a.Dk, a.Dv, from_end(a.k, a.L), from_end(a.q, a.L), from_end(a.d_o, a.L), from_end(a.dv, a.L)};
}

/// All three walks.
inline std::array<Product, 3> walks(const Arguments& a) {
  return {dq_walk(a), dk_walk(a), dv_walk(a)};
}

}  // namespace tutorial::causal_dot_product_backward
