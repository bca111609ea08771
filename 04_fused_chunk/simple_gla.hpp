#pragma once
/// @file
/// The operator `simple_gla` of chapter 04 and one declaration per stage. Plain views and sizes only: .cu files include
/// it.
///
///     S_t = exp(g_t) S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// Symbols: those of chapter 02. exp(g_t) is the gate of position t, one number for the whole state of a head; g_t <= 0
/// is its natural logarithm. Views of CPU stages point into host memory, views of GPU stages into device memory. GPU
/// stages only start their kernels, on current_stream(); they throw CudaError if the runtime refuses. So do
/// ..._unsupported, notes and memory if they query the device. All sizes are 1 or more. A stage does not check whether
/// it supports a problem: if its ..._unsupported is not empty, its behaviour is undefined. bind() throws
/// std::logic_error if the call lacks a size or has a tensor of another type. Source: Dao and Gu, "Transformers are
/// SSMs", arXiv 2405.21060 (Mamba-2's recurrence with a scalar decay); the name is flash-linear-attention's.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::simple_gla {

/// @tparam T the element type of q, k, v and o: float, or __nv_bfloat16 for the tensor-core stages. g and states are
/// fp32.
template <class T>
struct Arguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of `chunkwise`; the GPU stages have their own
  float scale;                      ///< multiplies q
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L], <= 0, may be -inf: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null if it is not wanted

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

void recurrent(const FloatArguments&);       ///< CPU, double: what every stage is checked against
void chunkwise(const FloatArguments&);       ///< CPU: chunks of C, heads over threads
void fused(const Bf16Arguments&);            ///< GPU: one walk, the state in registers
void specialized(const Bf16Arguments&);      ///< GPU, Hopper: the walk on warpgroups with tasks of their own
void register_scores(const Bf16Arguments&);  ///< GPU, Hopper: P in registers; the state does not wait for scores
void dispatch(const Bf16Arguments&);         ///< what a user calls
void two_kernels(const Bf16Arguments&);      ///< variant: the chunks' states into memory, then all outputs at once

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string fused_unsupported(const Bf16Arguments&);        ///< and of segments
std::string specialized_unsupported(const Bf16Arguments&);  ///< and of register_scores and bounded_start
std::string dispatch_unsupported(const Bf16Arguments&);
std::string two_kernels_unsupported(const Bf16Arguments&);

/// What dispatch picks on this GPU, as text for the report.
std::string dispatch_note(const Bf16Arguments&);

// Bytes of memory that a stage needs beside its inputs and outputs: scores, states.
std::int64_t chunkwise_memory(const FloatArguments&);
std::int64_t dispatch_memory(const Bf16Arguments&);
std::int64_t two_kernels_memory(const Bf16Arguments&);

// Bytes that a stage's kernels read from device memory or write to it, even if a cache serves them; -1 if that is
// unknown.
std::int64_t fused_bytes_moved(const Bf16Arguments&);
std::int64_t specialized_bytes_moved(const Bf16Arguments&);  ///< and of register_scores
std::int64_t dispatch_bytes_moved(const Bf16Arguments&);
std::int64_t two_kernels_bytes_moved(const Bf16Arguments&);

}  // namespace tutorial::simple_gla
