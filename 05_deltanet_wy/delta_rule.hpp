#pragma once
/// @file
/// The operator of chapter 05 and one declaration a stage. Plain views and sizes only: .cu files include it.
///
///     S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1}),    o_t = scale q_t S_t,    S_0 = initial_state or 0
///
/// Symbols: those of chapter 02; beta_t in [0, 1] how much of what the state has under k_t is replaced. With
/// `normalize_keys` k_t stands for k_t / sqrt(k_t . k_t + kKeyEps). Views of CPU stages point into host memory, views
/// of GPU stages into device memory. GPU stages only start their kernels, on current_stream(); they throw CudaError
/// where the runtime refuses. So do limits, notes and memory where they ask the device. All sizes are 1 or more. A
/// stage does not check its limits: where they are not empty, calling it is undefined. bind() throws std::logic_error
/// where the call lacks a size or has a tensor of another type.
/// Source: Yang et al., "Parallelizing Linear Transformers with the Delta Rule over Sequence Length", arXiv 2406.06484.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::delta_rule {

/// Under the root where keys are normalised: a key of zeros stays one.
inline constexpr float kKeyEps = 1e-6f;

/// @tparam T the element type of q, k, v and o: float, or __nv_bfloat16 for the tensor-core stages. beta and states are
/// fp32.
template <class T>
struct Arguments {
  int B, H, L, Dk, Dv;
  int C;                            ///< chunk length of the stages 2 to 4 and 6; the others have their own
  float scale;                      ///< multiplies q
  bool normalize_keys;              ///< k is not used as it is, but brought to length 1
  View<const T> q;                  ///< [B, H, L, Dk]
  View<const T> k;                  ///< [B, H, L, Dk]
  View<const T> v;                  ///< [B, H, L, Dv]
  View<const float> beta;           ///< [B, H, L], in [0, 1]: rows of one element
  View<const float> initial_state;  ///< [B, H, Dk, Dv]; data is null where S_0 = 0
  View<T> o;                        ///< [B, H, L, Dv]
  View<float> final_state;          ///< [B, H, Dk, Dv]; data is null where nobody asks for it

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using HalfArguments = Arguments<__nv_bfloat16>;  ///< q, k, v and o in bf16

void recurrent(const FloatArguments&);      ///< 1: CPU, double: what every stage is checked against
void dense_product(const FloatArguments&);  ///< 2: CPU, double: a chunk's matrices I - beta k^T k multiplied out
void wy(const FloatArguments&);             ///< 3: CPU, double: their product as I minus a sum, vector after vector
void ut_transform(const FloatArguments&);   ///< 4: CPU, double: those vectors at once, from one triangular solve
void recurrent_gpu(const FloatArguments&);  ///< 5: GPU: the state in registers, one kernel
void chunk_gpu(const FloatArguments&);      ///< 6: GPU: 4 in four kernels: T, W and U, states, outputs
void tensor_core(const HalfArguments&);     ///< 7: GPU: T from its 16 x 16 blocks, products on bf16 with mma
void fused(const HalfArguments&);           ///< 8: GPU: few kernels, few bytes: the state on the chip
void dispatch(const HalfArguments&);        ///< 9: what a user calls

// What a stage cannot run, as a sentence; empty where it can.
std::string recurrent_gpu_limits(const FloatArguments&);
std::string chunk_gpu_limits(const FloatArguments&);
std::string tensor_core_limits(const HalfArguments&);
std::string fused_limits(const HalfArguments&);
std::string dispatch_limits(const HalfArguments&);

// Bytes of memory that a stage needs beside its inputs and outputs: products, vectors, states.
std::int64_t dense_product_memory(const FloatArguments&);
std::int64_t wy_memory(const FloatArguments&);
std::int64_t ut_transform_memory(const FloatArguments&);
std::int64_t recurrent_gpu_memory(const FloatArguments&);
std::int64_t chunk_gpu_memory(const FloatArguments&);
std::int64_t tensor_core_memory(const HalfArguments&);
std::int64_t fused_memory(const HalfArguments&);
std::int64_t dispatch_memory(const HalfArguments&);

// Bytes that a stage's kernels ask global memory for or give to it, be it a cache that serves them.
std::int64_t recurrent_gpu_moved(const FloatArguments&);
std::int64_t chunk_gpu_moved(const FloatArguments&);
std::int64_t tensor_core_moved(const HalfArguments&);
std::int64_t fused_moved(const HalfArguments&);
std::int64_t dispatch_moved(const HalfArguments&);  ///< -1 where it computes in fp32

/// What dispatch picks on this GPU, as text for the report.
std::string dispatch_note(const HalfArguments&);

}  // namespace tutorial::delta_rule
