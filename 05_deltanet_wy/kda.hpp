#pragma once
/// @file
/// Kimi Delta Attention (KDA): the delta rule on a state that forgets, with one gate for each row of the state. One
/// declaration per stage. Plain views and sizes only: .cu files include it.
///
///     S_t = diag(exp(g_t)) S_{t-1} + beta_t k_t^T (v_t - k_t diag(exp(g_t)) S_{t-1}),    o_t = scale q_t S_t
///
/// S_0 = initial_state or 0. Symbols: those of delta_rule.hpp; g_t <= 0 is the natural logarithm of the gates of
/// position t, one for each of the Dk rows of the state. With g = 0 it is delta_rule. What delta_rule.hpp says of
/// views, streams, errors and `*_unsupported` holds here, too.
/// Source: Kimi Team, "Kimi Linear: An Expressive, Efficient Attention Architecture", arXiv 2510.26692, section 3.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::kda {

/// Added under the root when keys are normalised, as in delta_rule.hpp.
inline constexpr float kKeyEps = 1e-6f;

/// @tparam T the element type of q, k, v and o: float, or __nv_bfloat16 for the tensor-core stages. g, beta and states
/// are fp32.
template <class T>
struct Arguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of `chunkwise`; that of the tensor-core stages is fixed
  float scale;                      ///< multiplies q
  bool normalize_keys;              ///< k is scaled to length 1 first
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L, Dk], <= 0, may be -inf
  View<const float> beta;           ///< [B, H, L], in [0, 2]: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null if it is not wanted

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

void recurrent(const FloatArguments&);    ///< CPU, double: what every stage is checked against
void chunkwise(const FloatArguments&);    ///< CPU, double: chunks of C, sub-chunks of 16 for all pairwise decays
void tensor_core(const Bf16Arguments&);   ///< GPU: chunks of 64 on tensor cores, two kernels
void two_products(const Bf16Arguments&);  ///< Hopper: T multiplied into K- and P before a walk of warpgroups
void one_anchor(const Bf16Arguments&);    ///< Hopper: the same walk; P and A as products of warpgroups
void dispatch(const Bf16Arguments&);      ///< what a user calls

// Variants, which dispatch may choose.
void recurrent_gpu(const FloatArguments&);     ///< GPU: the state in registers, one kernel
void specialized_warps(const Bf16Arguments&);  ///< GPU: warps for loads, the chain, outputs; 32 or 64 columns
void segments(const Bf16Arguments&);           ///< Hopper: segments from zeros where gates allow it, or computed starts
void cluster(const Bf16Arguments&);            ///< Hopper: one kernel; two blocks prepare chunks for each other
void zero_starts(const Bf16Arguments&);        ///< Hopper: its segments from zeros where gates allow it, or `segments`
void middle_anchor(const Bf16Arguments&);      ///< Hopper: one kernel, chunks of 32; segments as those of zero_starts

// Why a kernel cannot run the problem, as a sentence; empty if it can. Here and below: dispatch/requirements.cu.
std::string recurrent_gpu_unsupported(const FloatArguments&);
std::string tensor_core_unsupported(const Bf16Arguments&);
std::string specialized_warps_unsupported(const Bf16Arguments&);
std::string warpgroups_unsupported(const Bf16Arguments&);  ///< two_products
std::string one_anchor_unsupported(const Bf16Arguments&);  ///< also segments, cluster, zero_starts, middle_anchor
std::string dispatch_unsupported(const Bf16Arguments&);

// Bytes of memory that a kernel needs beside its inputs and outputs.
std::int64_t chunkwise_memory(const FloatArguments&);
std::int64_t tensor_core_memory(const Bf16Arguments&);   ///< also specialized_warps
std::int64_t two_products_memory(const Bf16Arguments&);  ///< also one_anchor
std::int64_t segments_memory(const Bf16Arguments&);
std::int64_t zero_starts_memory(const Bf16Arguments&);
std::int64_t middle_anchor_memory(const Bf16Arguments&);
std::int64_t dispatch_memory(const Bf16Arguments&);

// Bytes that a stage's kernels read from device memory or write to it, even if a cache serves them.
std::int64_t recurrent_gpu_bytes_moved(const FloatArguments&);
std::int64_t tensor_core_bytes_moved(const Bf16Arguments&);
std::int64_t specialized_warps_bytes_moved(const Bf16Arguments&);
std::int64_t two_products_bytes_moved(const Bf16Arguments&);
std::int64_t one_anchor_bytes_moved(const Bf16Arguments&);
std::int64_t cluster_bytes_moved(const Bf16Arguments&);
std::int64_t dispatch_bytes_moved(const Bf16Arguments&);  ///< -1 if it computes in fp32

/// What dispatch chooses on this GPU, as text for the report.
std::string dispatch_note(const Bf16Arguments&);

}  // namespace tutorial::kda
