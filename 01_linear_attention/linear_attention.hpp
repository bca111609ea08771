#pragma once
/// @file
/// The three operators of chapter 01 and one declaration per stage. Plain views and sizes only: .cu files include it.
///
/// Symbols: B batch, H heads, L queries, Lk keys, Dk and Dv the widths of a key and of a value; positions t and i.
/// Views of CPU stages point into host memory, views of GPU stages into device memory. GPU stages only start their
/// kernels, on current_stream(); they throw CudaError if the runtime refuses. So do the functions *_unsupported and
/// *_note if they query the device. All sizes are 1 or more. A stage does not check what it supports: calling it is
/// undefined if *_unsupported is not empty. bind() throws std::logic_error if the call lacks a size or has a tensor of
/// another type.

#include <string>

#include "common/view.hpp"

namespace tutorial {

/// The bare operator, without feature map and normaliser: o_t = q_t sum_{i<=t} k_i^T v_i.
/// Source: Katharopoulos et al., "Transformers are RNNs", arXiv 2006.16236, equations 10 to 12 and algorithm 1.
namespace causal_dot_product {

/// The arguments of a stage: sizes, and views of q, k, v and o.
struct Arguments {
  int B, H, L, Dk, Dv;
  View<const float> q;  ///< [B, H, L, Dk]
  View<const float> k;  ///< [B, H, L, Dk]
  View<const float> v;  ///< [B, H, L, Dv]
  View<float> o;        ///< [B, H, L, Dv]

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

// On the CPU.
void quadratic(const Arguments&);        ///< the masked score matrix in double, O(L^2)
void recurrent(const Arguments&);        ///< the state S, plain loops, one thread
void recurrent_eigen(const Arguments&);  ///< the same two lines in Eigen, batch and heads over threads
/// The recurrence in double: the reference for sequences that are too long for `quadratic`.
void recurrent_double(const Arguments&);

// On the GPU, fp32.
void atomic(const Arguments&);              ///< 8 rows of S per block, partial outputs added atomically
void registers(const Arguments&);           ///< S in registers, one block per (batch, head)
void lmha(const Arguments&);                ///< tiles of positions, loaded while the tile before is computed
void lmha_low_occupancy(const Arguments&);  ///< one block per (batch, head, value column), positions in parallel
void dispatch(const Arguments&);            ///< what a user calls

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string quadratic_unsupported(const Arguments&);
std::string atomic_unsupported(const Arguments&);
std::string registers_unsupported(const Arguments&);
std::string lmha_unsupported(const Arguments&);
std::string lmha_low_occupancy_unsupported(const Arguments&);
std::string dispatch_unsupported(const Arguments&);
/// The kernel that dispatch chooses on this GPU, and how it cuts a head, as text for the report.
std::string dispatch_note(const Arguments&);

}  // namespace causal_dot_product

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
