#pragma once
/// @file
/// The tensors on which causal_dot_product computes a layer.

#include "01_linear_attention/attention.hpp"

namespace tutorial::causal_attention {

/// Starts the kernel for phi(q), phi(k) and [v, 1] on current_stream(). Rows of keys that do not count or do not exist
/// become zeros, except for the last element of v_one, which is 1 in every row.
/// @param key_rows the number of key rows to write
/// @param phi_q [B, H, L, Dk]
/// @param phi_k [B, H, key_rows, Dk]
/// @param v_one [B, H, key_rows, Dv + 1]
/// @throws CudaError if the launch is refused
void features(const Arguments& a, int key_rows, const View<float>& phi_q, const View<float>& phi_k,
              const View<float>& v_one);

}  // namespace tutorial::causal_attention
