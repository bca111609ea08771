#pragma once
/// @file
/// The operator of chapter 05 and one declaration per stage. Plain views and sizes only: .cu files include it.
///
///     S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1}),    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// Symbols: those of chapter 02; beta_t in [0, 2] is the fraction of the state's answer to k_t that is replaced, and
/// above 1 the answer changes sign. With `normalize_keys` k_t stands for k_t / sqrt(k_t . k_t + kKeyEps). Views of CPU
/// stages point into host memory, views of GPU stages into device memory. GPU stages only start their kernels, on
/// current_stream(); they throw CudaError if the runtime refuses. Functions that query the device throw it, too:
/// `*_unsupported`, notes and memory. All sizes are 1 or more. A stage does not check its `*_unsupported`: if that is
/// not empty, the behaviour of the stage is
/// undefined. bind() throws std::logic_error if the call lacks a size or has a tensor of another type.
/// Source: Yang et al., "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", arXiv 2406.06484.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::delta_rule {

/// Added under the root when keys are normalised, so that a key of zeros stays a key of zeros.
inline constexpr float kKeyEps = 1e-6f;

/// @tparam T the element type of q, k, v and o: float, or __nv_bfloat16 for the tensor-core stages. beta and states are
/// fp32.
template <class T>
struct Arguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of the CPU stages and of chunk_gpu; the others have a fixed one
  float scale;                      ///< multiplies q
  bool normalize_keys;              ///< k is scaled to length 1 first
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> beta;           ///< [B, H, L], in [0, 2]: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null if S_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null if it is not wanted

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

void recurrent(const FloatArguments&);      ///< CPU, double: what every stage is checked against
void dense_product(const FloatArguments&);  ///< CPU, double: a chunk's matrices I - beta k^T k multiplied out
void wy(const FloatArguments&);             ///< CPU, double: their product as I minus a sum, vector after vector
void ut_transform(const FloatArguments&);   ///< CPU, double: those vectors at once, from one triangular solve
void chunk_gpu(const FloatArguments&);      ///< GPU: ut_transform in four kernels: T, W and U, states, outputs
void block_inverse(const FloatArguments&);  ///< GPU: T from its 16 x 16 blocks
void tensor_core(const Bf16Arguments&);     ///< GPU: the four kernels on tensor cores
void fused(const Bf16Arguments&);  ///< GPU: one walk computes T (V - K S) and the outputs: no W, no U, no states
void warpgroup_chain(const Bf16Arguments&);  ///< Hopper: the chain by warpgroup products, outputs in its gaps
void scores_in_walk(const Bf16Arguments&);   ///< Hopper: P in a warpgroup of its own beside the chain
void cluster(const Bf16Arguments&);          ///< Hopper: T, too; the two blocks of a head share the work for it
void three_blocks(const Bf16Arguments&);     ///< Hopper: a third block computes T and P for them
void segments(const Bf16Arguments&);         ///< Hopper: the sequence in segments, a transition as the walk of -K
void dispatch(const Bf16Arguments&);         ///< what a user calls

// Variants, which dispatch may choose.
void recurrent_gpu(const FloatArguments&);     ///< GPU: the state in registers, one kernel
void specialized_warps(const Bf16Arguments&);  ///< GPU: warps that load, warps in the chain, warps for outputs
void one_kernel(const Bf16Arguments&);         ///< Hopper: T and P in warps of the block that walks
void one_block(const Bf16Arguments&);          ///< Hopper: a head in one block, with two chains

// Why dispatch cannot run the problem, as a sentence, empty if it can; what it chooses on this GPU, as text for the
// report; the bytes of memory that it needs beside inputs and outputs; and those that its kernels read from device memory
// or write to it, even if a cache serves them, -1 if it computes in fp32. Of the stages: dispatch/requirements.hpp.
std::string dispatch_unsupported(const Bf16Arguments&);
std::string dispatch_note(const Bf16Arguments&);
std::int64_t dispatch_memory(const Bf16Arguments&);
std::int64_t dispatch_bytes_moved(const Bf16Arguments&);

}  // namespace tutorial::delta_rule
