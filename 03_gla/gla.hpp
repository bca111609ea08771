#pragma once
/// @file
/// The operator `gla` of chapter 03 and one declaration a stage. Plain views and sizes only: .cu files include it.
///
///     S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// Symbols: those of chapter 02; g_t <= 0 the natural logarithm of position t's gates, one for each of the Dk rows of
/// the state; c positions in a sub-chunk. Views of CPU stages point into host memory, views of GPU stages into device
/// memory. GPU stages only start their kernels, on current_stream(); they throw CudaError where the runtime refuses. So
/// do limits, notes and memory where they ask the device. All sizes are 1 or more. A stage does not check its limits:
/// where they are not empty, calling it is undefined. bind() throws std::logic_error where the call lacks a size or has
/// a tensor of another type.
/// Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", arXiv 2312.06635,
/// section 4.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::gla {

/// @tparam T the element type of q, k, v and o: float, or __nv_bfloat16 for the tensor-core stages. Gates and states
/// are fp32.
template <class T>
struct Arguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of stage 4; the GPU stages have their own
  float scale;                      ///< multiplies q
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> g;              ///< [B, H, L, Dk], <= 0
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null where S_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null where nobody asks for it

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using HalfArguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

void recurrent(const FloatArguments&);            ///< 1: CPU, double: what every stage is checked against
void parallel_unstable(const FloatArguments&);    ///< 2: CPU: ((Q . B) (K / B)^T . M) V
void parallel_log(const FloatArguments&);         ///< 3: CPU: scores from differences of logarithms
void chunkwise(const FloatArguments&);            ///< 4: CPU: chunks of C, sub-chunks of 16, heads over threads
void recurrent_gpu(const FloatArguments&);        ///< 5: GPU: the state in registers, one kernel
void chunk_gpu(const FloatArguments&);            ///< 6: GPU: each chunk's state in device memory, four kernels
void subchunk_tensor_core(const HalfArguments&);  ///< 7: GPU: sub-chunks on bf16 with mma
void subchunk_walk(const HalfArguments&);         ///< 8: GPU: no pairs but those within sub-chunks; segments at once
void dispatch(const HalfArguments&);              ///< 9: what a user calls
void dispatch(const FloatArguments&);             ///< 9 for q, k, v, o in fp32

// What a stage cannot run, as a sentence; empty where it can.
std::string parallel_unstable_limits(const FloatArguments&);  ///< reads g, if any: these gates may be too strong
std::string parallel_log_limits(const FloatArguments&);
std::string recurrent_gpu_limits(const FloatArguments&);
std::string chunk_gpu_limits(const FloatArguments&);
std::string subchunk_tensor_core_limits(const HalfArguments&);
std::string subchunk_walk_limits(const HalfArguments&);
std::string dispatch_limits(const HalfArguments&);
std::string dispatch_limits(const FloatArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs: scores, states, sums of gates.
std::int64_t parallel_unstable_memory(const FloatArguments&);
std::int64_t parallel_log_memory(const FloatArguments&);
std::int64_t chunkwise_memory(const FloatArguments&);
std::int64_t recurrent_gpu_memory(const FloatArguments&);
std::int64_t chunk_gpu_memory(const FloatArguments&);
std::int64_t subchunk_tensor_core_memory(const HalfArguments&);
std::int64_t subchunk_walk_memory(const HalfArguments&);
std::int64_t dispatch_memory(const HalfArguments&);
std::int64_t dispatch_memory(const FloatArguments&);

/// Bytes that its kernels ask global memory for or give to it, be it a cache that serves them; -1 where the widths are
/// not for the tensor cores.
std::int64_t dispatch_moved(const HalfArguments&);

/// How small stage 2's products of gates have become, as text for the report.
std::string parallel_unstable_note(const FloatArguments&);
/// What dispatch picks on this GPU, as text for the report.
std::string dispatch_note(const HalfArguments&);
std::string dispatch_note(const FloatArguments&);

}  // namespace tutorial::gla
