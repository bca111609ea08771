#pragma once
/// @file
/// The operator `gla_layer`: the layer around gla, which computes q, k, v and g from one x, and y from gla's o.
///
///     q = x Wq^T    k = x Wk^T    v = x Wv^T    z = x Wz^T            H heads of Dk or Dv columns, side by side
///     g = logsigmoid(x W1^T W2^T + bias) / normalizer                 the gates' logarithms, through `rank` numbers
///     o = gla(q, k, v, g)                                             scale Dk^-1/2 unless given
///     u = o / sqrt(mean(o^2) + eps) * w * z sigmoid(z)                each head by itself, the mean over its Dv
///     y = u Wo^T
///
/// Source: Yang et al., arXiv 2312.06635, section 4.4; the weights' names, the low-rank pair's place in the order and
/// the normaliser of 16 are those of flash-linear-attention's GatedLinearAttention.
///
/// Pointers are into host memory for CPU stages, device memory for GPU stages. These start their work on
/// current_stream() and throw CudaError if the runtime or cuBLAS refuses. Sizes, ..._unsupported and bind() as in
/// gla.hpp.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::gla_layer {

/// @tparam T the element type of x, y and the matrices: float, or __nv_bfloat16. All are packed.
template <class T>
struct Arguments {
  int B, H, L;
  int d_model;        ///< columns of x and y
  int rank;           ///< numbers per position that its gates depend on
  int Dk, Dv;         ///< widths of a head; the heads side by side are key_dim and value_dim wide
  float scale;        ///< multiplies q
  float eps;          ///< under the root
  float normalizer;   ///< of the gates
  const T* x;         ///< [B, L, d_model]
  const T* Wq;        ///< [H Dk, d_model]  q_proj.weight
  const T* Wk;        ///< [H Dk, d_model]  k_proj.weight
  const T* Wv;        ///< [H Dv, d_model]  v_proj.weight
  const T* Wz;        ///< [H Dv, d_model]  g_proj.weight
  const T* W1;        ///< [rank, d_model]  gk_proj.0.weight
  const T* W2;        ///< [H Dk, rank]     gk_proj.1.weight
  const float* bias;  ///< [H Dk]           gk_proj.1.bias
  const float* w;     ///< [Dv]             g_norm_swish_gate.weight
  const T* Wo;        ///< [d_model, H Dv]  o_proj.weight
  T* y;               ///< [B, L, d_model]

  /// Columns of q and k of all heads together.
  int key_dim() const { return H * Dk; }
  /// Columns of v and o of all heads together.
  int value_dim() const { return H * Dv; }

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< x, y and the matrices in bf16

/// The layer in double on the CPU: what the stages are checked against.
void reference(const FloatArguments&);
/// Bytes of memory that both references need beside their tensors.
std::int64_t reference_memory(const FloatArguments&);
/// The same with q, k, v and z rounded to bf16, for the stage in bf16.
void bf16_reference(const FloatArguments&);

void cpu(const FloatArguments&);  ///< CPU: Eigen, and gla's chunkwise
template <class T>
void gpu(const Arguments<T>&);  ///< GPU: matrices in fp32, or in bf16

/// Why the GPU cannot run the problem, as a sentence; empty if it can.
template <class T>
std::string gpu_unsupported(const Arguments<T>&);

// Bytes of memory that a stage needs beside its inputs and outputs: everything between x and y.
std::int64_t cpu_memory(const FloatArguments&);
template <class T>
std::int64_t gpu_memory(const Arguments<T>&);

/// Which stage of gla its dispatch picks, as text for the report.
template <class T>
std::string gpu_note(const Arguments<T>&);

}  // namespace tutorial::gla_layer
