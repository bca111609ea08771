#pragma once
/// @file
/// The operator `simple_gla` of chapter 04 and one declaration a stage. Plain views and sizes only: .cu files include
/// it.
///
///     S_t = exp(g_t) S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// Symbols: those of chapter 02; g_t <= 0 the natural logarithm of position t's gate, one number for the whole state of
/// a head. Views of CPU stages point into host memory, views of GPU stages into device memory. GPU stages only start
/// their kernels, on current_stream(); they throw CudaError where the runtime refuses. So do limits, notes and memory
/// where they ask the device. All sizes are 1 or more. A stage does not check its limits: where they are not empty,
/// calling it is undefined. bind() throws std::logic_error where the call lacks a size or has a tensor of another type.
/// Source: Dao and Gu, "Transformers are SSMs", arXiv 2405.21060 (Mamba-2's recurrence with a scalar decay); the name
/// is flash-linear-attention's.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::simple_gla {

/// @tparam T the element type of q, k, v and o: float, or __nv_bfloat16 for the tensor-core stages. Gates and states
/// are fp32.
template <class T>
struct Arguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of stage 2; the GPU stages have their own
  float scale;                      ///< multiplies q
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L], <= 0: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null where S_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null where nobody asks for it

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using HalfArguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

void recurrent(const FloatArguments&);   ///< 1: CPU, double: what every stage is checked against
void chunkwise(const FloatArguments&);   ///< 2: CPU: chunks of C, heads over threads
void two_kernels(const HalfArguments&);  ///< 3: GPU: each chunk's state in device memory, then all outputs at once
void fused(const HalfArguments&);        ///< 4: GPU: one walk, the state in registers
void sequence_parallel(const HalfArguments&);  ///< 5: GPU: 4 on segments of the sequence at once
void dispatch(const HalfArguments&);           ///< 6: what a user calls

// What a stage cannot run, as a sentence; empty where it can.
std::string two_kernels_limits(const HalfArguments&);
std::string fused_limits(const HalfArguments&);  ///< of the stages 4 and 5
std::string dispatch_limits(const HalfArguments&);

/// What dispatch picks on this GPU, as text for the report.
std::string dispatch_note(const HalfArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs: scores, states.
std::int64_t chunkwise_memory(const FloatArguments&);
std::int64_t two_kernels_memory(const HalfArguments&);
std::int64_t fused_memory(const HalfArguments&);
std::int64_t sequence_parallel_memory(const HalfArguments&);
std::int64_t dispatch_memory(const HalfArguments&);

// Bytes that a stage's kernels ask global memory for or give to it, be it a cache that serves them.
std::int64_t two_kernels_moved(const HalfArguments&);
std::int64_t fused_moved(const HalfArguments&);
std::int64_t sequence_parallel_moved(const HalfArguments&);
std::int64_t dispatch_moved(const HalfArguments&);

}  // namespace tutorial::simple_gla
