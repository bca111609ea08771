#pragma once
/// @file
/// The two operators of chapter 01 that have a feature map and a normaliser, their gradients, and one declaration per
/// stage. Symbols, memory, errors and requirements are as in causal_dot_product.hpp; Lk is the number of keys.

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial {

/// The operators with feature map phi(x) = elu(x) + 1, normaliser and key lengths share their arguments.
struct AttentionArguments {
  int B, H, L, Lk, Dk, Dv;
  View<const float> q;     ///< [B, H, L, Dk]
  View<const float> k;     ///< [B, H, Lk, Dk]
  View<const float> v;     ///< [B, H, Lk, Dv]
  const int* key_lengths;  ///< [B], or null if every key counts: phi(k_i) = 0 for i >= key_lengths[b]
  float eps;               ///< added to the normaliser
  View<float> o;           ///< [B, H, L, Dv]

  static AttentionArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

/// o_t = phi(q_t) S_t / (phi(q_t) . z_t + eps) with S_t = sum_{i<=t} phi(k_i)^T v_i, z_t = sum_{i<=t} phi(k_i). If Lk <
/// L, the missing keys have phi(k) = 0. If Lk > L, the keys past L are never reached.
/// Source: arXiv 2006.16236, equations 8 to 12, and 16 to 20 as a recurrence.
namespace causal_attention {
/// What a stage gets.
using Arguments = AttentionArguments;
void recurrent(const Arguments&);         ///< CPU, float
void gpu(const Arguments&);               ///< feature map, product and normaliser on the device
void recurrent_double(const Arguments&);  ///< the reference for long sequences
void quadratic_double(const Arguments&);  ///< the reference, weight by weight
// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string gpu_unsupported(const Arguments&);
}  // namespace causal_attention

/// o_t = phi(q_t) S / (phi(q_t) . z + eps) with S = sum_i phi(k_i)^T v_i, z = sum_i phi(k_i) over all Lk keys.
/// Source: arXiv 2006.16236, equations 3 to 6.
namespace bidirectional_attention {
/// What a stage gets.
using Arguments = AttentionArguments;
void eigen(const Arguments&);             ///< CPU, float
void gpu(const Arguments&);               ///< two tiled products on the device
void state_double(const Arguments&);      ///< S and z in double: the reference for long sequences
void quadratic_double(const Arguments&);  ///< the reference, weight by weight
// Bytes of memory in addition to inputs and outputs.
std::int64_t eigen_memory(const Arguments&);
std::int64_t state_double_memory(const Arguments&);
// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string gpu_unsupported(const Arguments&);
}  // namespace bidirectional_attention

/// The arguments of the gradients of the two layers with respect to their inputs, given the gradient of o.
struct AttentionBackwardArguments : AttentionArguments {  // without o
  View<const float> d_o;                                  ///< do [B, H, L, Dv], the gradient of o
  View<float> dq;                                         ///< [B, H, L, Dk]
  View<float> dk;  ///< [B, H, Lk, Dk]; zeros for keys that do not count, as in dv
  View<float> dv;  ///< [B, H, Lk, Dv]
  // Only the reference gets these. The normaliser makes dq and dk differences of two terms; these are the second terms.
  View<float> dq_subtracted;  ///< phi'(q_t) . (do_t . o_t / c_t) z_t, with c_t the normaliser
  View<float> dk_subtracted;  ///< phi'(k_i) . sum_t (do_t . o_t / c_t) phi(q_t), over the t that see key i

  static AttentionBackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

/// The gradients of causal_attention.
namespace causal_attention_backward {
/// What a stage gets.
using Arguments = AttentionBackwardArguments;
void recurrent(const Arguments&);         ///< CPU, float: a walk from each end
void dispatch(const Arguments&);          ///< the gradients of causal_dot_product, with kernels around them
void recurrent_double(const Arguments&);  ///< the reference for long sequences
void quadratic_double(const Arguments&);  ///< the reference, weight by weight
// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string dispatch_unsupported(const Arguments&);
}  // namespace causal_attention_backward

/// The gradients of bidirectional_attention.
namespace bidirectional_attention_backward {
/// What a stage gets.
using Arguments = AttentionBackwardArguments;
void eigen(const Arguments&);             ///< CPU, float: six matrix products
void dispatch(const Arguments&);          ///< the same on the device, one kernel
void state_double(const Arguments&);      ///< `eigen` in double: the reference for long sequences
void quadratic_double(const Arguments&);  ///< the reference, weight by weight
// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string dispatch_unsupported(const Arguments&);
}  // namespace bidirectional_attention_backward

}  // namespace tutorial
