#pragma once
/// @file
/// The operator `gated_delta_rule` of chapter 05 and one declaration per stage. Plain views and sizes only: .cu files
/// include it.
///
///     S_t = exp(g_t) S_{t-1} + beta_t k_t^T (v_t - k_t exp(g_t) S_{t-1}),    o_t = scale q_t S_t,
///     S_0 = initial_state or 0
///
/// Symbols: those of `delta_rule`. exp(g_t) is the gate of position t, one number for the whole state of a head; g_t <=
/// 0 is its natural logarithm. What delta_rule.hpp says of views, errors, sizes and unsupported problems holds here,
/// too.
/// Source: S. Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", arXiv
/// 2412.06464, equation 10 (there in columns: our S is its transpose).

#include "05_deltanet_wy/delta_rule.hpp"
#include "common/device/walked_heads.hpp"

namespace tutorial::gated_delta_rule {

using delta_rule::kKeyEps;

/// The arguments of `delta_rule`, and the gates.
/// @tparam T the element type of q, k, v and o: float, or __nv_bfloat16 for the tensor-core stages. g, beta and states
/// are fp32.
template <class T>
struct Arguments : delta_rule::Arguments<T> {
  View<const float> g;  ///< [B, H, L], <= 0, may be -inf: rows of one element
  WalkedHeads heads{};  ///< that dispatch has walked already: `three_blocks` and `segments` leave them out

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

void recurrent(const FloatArguments&);    ///< CPU, double: what every stage is checked against
void chunkwise(const FloatArguments&);    ///< CPU, double: the UT transform with a decay for each pair of positions
void tensor_core(const Bf16Arguments&);   ///< GPU: T, P and decays, then one walk that computes outputs
void three_blocks(const Bf16Arguments&);  ///< Hopper: a third block computes T, P and decays for two that walk
void dispatch(const Bf16Arguments&);      ///< what a user calls

// Variants, which dispatch may choose.
void recurrent_gpu(const FloatArguments&);  ///< GPU: the state in registers, one kernel
void segments(const Bf16Arguments&);        ///< Hopper: the sequence cut into segments that are walked at once
void cluster(const Bf16Arguments&);         ///< Hopper: the two blocks of a head share T, P and decays
void one_block(const Bf16Arguments&);       ///< Hopper: a head in one block, with two chains
void zero_starts(const Bf16Arguments&);     ///< Hopper: its segments from zeros, where gates allow it, or `segments`

// Why a kernel cannot run the problem, as a sentence; empty if it can. Here and below: dispatch/requirements.cu.
std::string recurrent_gpu_unsupported(const FloatArguments&);
std::string tensor_core_unsupported(const Bf16Arguments&);
std::string warpgroups_unsupported(const Bf16Arguments&);  ///< segments
std::string cluster_unsupported(const Bf16Arguments&);     ///< also three_blocks, one_block, zero_starts
std::string dispatch_unsupported(const Bf16Arguments&);

// Bytes of memory that a kernel needs beside its inputs and outputs.
std::int64_t chunkwise_memory(const FloatArguments&);
std::int64_t tensor_core_memory(const Bf16Arguments&);
std::int64_t segments_memory(const Bf16Arguments&);
std::int64_t zero_starts_memory(const Bf16Arguments&);
std::int64_t dispatch_memory(const Bf16Arguments&);

// Bytes that a stage's kernels read from device memory or write to it, even if a cache serves them.
std::int64_t recurrent_gpu_bytes_moved(const FloatArguments&);
std::int64_t tensor_core_bytes_moved(const Bf16Arguments&);
std::int64_t segments_bytes_moved(const Bf16Arguments&);
std::int64_t cluster_bytes_moved(const Bf16Arguments&);  ///< also three_blocks
std::int64_t one_block_bytes_moved(const Bf16Arguments&);
std::int64_t dispatch_bytes_moved(const Bf16Arguments&);  ///< -1 if it computes in fp32

/// What dispatch chooses on this GPU, as text for the report.
std::string dispatch_note(const Bf16Arguments&);

}  // namespace tutorial::gated_delta_rule
