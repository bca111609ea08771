#pragma once
/// @file
/// The gradients through a layer's division and its feature map, row by row.

#include "01_linear_attention/attention.hpp"

namespace tutorial::causal_attention_backward {

/// Starts the kernel for [do_t / c_t, -(do_t . o_t) / c_t] on current_stream(): the gradient of o_one.
/// @param o_one [B, H, L, Dv + 1]: phi(q_t) S_t, and in the last column phi(q_t) . z_t, which is c_t without eps
/// @param do_one [B, H, L, Dv + 1]
/// @throws CudaError if the launch is refused
void through_division(const Arguments& a, const View<const float>& o_one, const View<float>& do_one);

/// Starts the kernel for dq, dk and dv on current_stream(). Keys beyond the key length get zeros.
/// @param key_rows the number of rows of dphi_k and dv_one
/// @param dphi_q [B, H, L, Dk]
/// @param dphi_k [B, H, key_rows, Dk]
/// @param dv_one [B, H, key_rows, Dv + 1]; the last column is not read
/// @throws CudaError if the launch is refused
void through_features(const Arguments& a, int key_rows, const View<const float>& dphi_q,
                      const View<const float>& dphi_k, const View<const float>& dv_one);

}  // namespace tutorial::causal_attention_backward
