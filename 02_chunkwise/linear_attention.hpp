#pragma once
/// @file
/// The operator of chapter 02 and one declaration per stage. Plain views and sizes only: .cu files include it.
///
///     S_t = S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// Symbols: B batch, H heads, L positions, Dk and Dv the widths of a key and of a value, C positions in a chunk;
/// positions t and i, chunks n. All vectors are rows. Views of CPU stages point into host memory, views of GPU stages
/// into device memory. GPU stages only start their kernels, on current_stream(); they throw CudaError if the runtime
/// refuses. So do the functions *_unsupported, *_note and *_memory if they query the device. All sizes are 1 or more. A
/// stage does not check what it supports: calling it is undefined if *_unsupported is not empty. bind() throws
/// std::logic_error if the call lacks a size or has a tensor of another type.
/// Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", arXiv 2312.06635,
/// section 2 and algorithm 1.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::linear_attention {

/// @tparam T the element type of q, k, v and o: float, or __nv_bfloat16 for the tensor-core stages. States are fp32.
template <class T>
struct Arguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of `chunkwise`; the GPU stages have their own
  float scale;                      ///< multiplies q
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null if it is unused

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

// In double on the CPU: the references of every stage.
void quadratic_double(const FloatArguments&);  ///< O(L^2), up to L = 4096
void recurrent_double(const FloatArguments&);  ///< O(L), for longer sequences

void recurrent(const FloatArguments&);       ///< GPU: chapter 01's last stage on scale q, plus scale q_t S_0
void parallel(const FloatArguments&);        ///< CPU: ((Q K^T) . M) V whole
void chunkwise(const FloatArguments&);       ///< CPU: chunks of C, heads over threads
void materialized(const FloatArguments&);    ///< GPU: each chunk's state in device memory, three kernels
void fused(const FloatArguments&);           ///< GPU: the state on the chip, one kernel
void mma_products(const Bf16Arguments&);     ///< GPU: `fused` on bf16, with products on tensor cores
void register_state(const Bf16Arguments&);   ///< GPU: `mma_products` with the state in registers
void tensor_core(const Bf16Arguments&);      ///< GPU: `register_state` with swizzled tiles, half of the scores
void pipelined(const Bf16Arguments&);        ///< GPU: `tensor_core` with loads during the products
void segments(const Bf16Arguments&);         ///< GPU: `pipelined` on all segments of a sequence at once
void bulk_copies(const Bf16Arguments&);      ///< GPU: `pipelined` with tiles by bulk copies, for Hopper
void warpgroup_mma(const Bf16Arguments&);    ///< GPU: `bulk_copies` with products of a warpgroup
void specialized(const Bf16Arguments&);      ///< GPU: `warpgroup_mma` with a task for each warpgroup
void balanced_roles(const Bf16Arguments&);   ///< GPU: `specialized` with work moved away from the state
void queued_products(const Bf16Arguments&);  ///< GPU: `balanced_roles` with the next product in the queue
void dispatch(const Bf16Arguments&);         ///< what a user calls
void cluster(const Bf16Arguments&);          ///< variant: `queued_products`, two blocks share the scores of a head

// Why dispatch cannot run the problem, as a sentence, empty if it can; the kernel and plan that it chooses on this GPU,
// as text for the report; and the bytes of memory that it needs in addition to inputs and outputs. Of the stages:
// linear_attention/requirements.hpp.
std::string dispatch_unsupported(const Bf16Arguments&);
std::string dispatch_note(const Bf16Arguments&);
std::int64_t dispatch_memory(const Bf16Arguments&);
// The bytes of those that keep states in device memory.
std::int64_t materialized_memory(const FloatArguments&);
std::int64_t segments_memory(const Bf16Arguments&);

}  // namespace tutorial::linear_attention
