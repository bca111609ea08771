#pragma once
/// @file
/// The operator `gla` of chapter 03 and one declaration per stage. Plain views and sizes only: .cu files include it.
///
///     S_t = diag(exp(g_t)) S_{t-1} + k_t^T v_t,    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// Symbols: those of chapter 02. exp(g_t) are the gates of position t, one for each of the Dk rows of the state; g_t <=
/// 0 is their natural logarithm. c is the number of positions in a sub-chunk. Views of CPU stages point into host
/// memory, views of GPU stages into device memory. GPU stages only start their kernels, on current_stream(); they throw
/// CudaError if the runtime refuses. So do ..._unsupported, notes and memory if they query the device. All sizes are 1
/// or more. A stage does not check whether it supports a problem: if its ..._unsupported is not empty, its behaviour is
/// undefined. bind() throws std::logic_error if the call lacks a size or has a tensor of another type.
/// Source: Yang et al., "Gated Linear Attention Transformers with Hardware-Efficient Training", arXiv 2312.06635,
/// section 4.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::gla {

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
  View<const float> g;              ///< [B, H, L, Dk], <= 0, may be -inf
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null if it is not wanted

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

void recurrent(const FloatArguments&);            ///< CPU, double: what every stage is checked against
void parallel_unstable(const FloatArguments&);    ///< CPU: ((Q . G) (K / G)^T . M) V
void parallel_log(const FloatArguments&);         ///< CPU: scores from differences of logarithms
void chunkwise(const FloatArguments&);            ///< CPU: chunks of C, sub-chunks of 16, heads over threads
void chunk_gpu(const FloatArguments&);            ///< GPU: each chunk's state in device memory, four kernels
void subchunk_tensor_core(const Bf16Arguments&);  ///< GPU: sub-chunks on bf16 with mma
void subchunk_walk(const Bf16Arguments&);         ///< GPU: from sub-chunk to sub-chunk through the state
void walk_segments(const Bf16Arguments&);         ///< GPU: the same walk on segments of the sequence at once
void warpgroup_walk(const Bf16Arguments&);        ///< GPU: the walk on products of warpgroups
void dispatch(const Bf16Arguments&);              ///< what a user calls
void dispatch(const FloatArguments&);             ///< the same for q, k, v and o in fp32
void recurrent_gpu(const FloatArguments&);        ///< variant: the state in registers, one kernel

// Why dispatch cannot run the problem, as a sentence, empty if it can; what it picks on this GPU, as text for the
// report; and the bytes of memory that it needs beside inputs and outputs. Of the stages: gla/requirements.hpp.
std::string dispatch_unsupported(const Bf16Arguments&);
std::string dispatch_unsupported(const FloatArguments&);
std::string dispatch_note(const Bf16Arguments&);
std::string dispatch_note(const FloatArguments&);
std::int64_t dispatch_memory(const Bf16Arguments&);
std::int64_t dispatch_memory(const FloatArguments&);

/// Bytes that dispatch's kernels read from device memory or write to it, even if a cache serves them; -1 if
/// subchunk_walk_unsupported() is not empty.
std::int64_t dispatch_bytes_moved(const Bf16Arguments&);

/// Microseconds that dispatch expects to take on tensor cores; infinite if it computes in fp32.
double dispatch_time(const Bf16Arguments&);

/// Why the walks cannot run the problem: subchunk_walk, segments, and what chapter 04 makes of them.
std::string subchunk_walk_unsupported(const Bf16Arguments&);

/// Bytes that chunk_gpu needs beside inputs and outputs: sums of gates, and states.
std::int64_t chunk_gpu_memory(const FloatArguments&);

}  // namespace tutorial::gla
