#pragma once
/// @file
/// The operator `short_convolution`, as layers of linear attention have it before q, k and v, and its gradients. Plain
/// views and sizes only: .cu files include it.
///
///     y_td = sum_{j<W} kernel_dj u_{t-W+1+j, d}
///
/// Each channel d has W numbers of its own; the last of them belongs to the position at hand. What comes before position
/// 0 is initial_state, whose row W + t is position t < 0, or zeros. final_state is the same for whatever comes next: the
/// last W positions. They must not be the same memory. (Row 0 of a state is never used: layers keep it, too.)
///
///     du_td = sum_{j<W} kernel_dj dy_{t+W-1-j, d},    dkernel_dj = sum over b and t of dy_td u_{t-W+1+j, d}
///
/// Stages only start their kernels, on current_stream(); they throw CudaError if the runtime refuses. All sizes are 1 or
/// more. bind() throws std::logic_error if the call lacks a size or has a tensor of another type.
/// Source: Gu and Dao, "Mamba", arXiv 2312.00752, section 3.4, whose layer has this convolution.

#include <cuda_bf16.h>

#include <cstdint>
#include <string>

#include "common/view.hpp"

namespace tutorial::short_convolution {

/// @tparam T the element type of u and y: float, or __nv_bfloat16. The kernel and states are fp32.
template <class T>
struct Arguments {
  int B, L, D, W;
  View<const T> u;                  ///< [B, L, D]
  const float* kernel;              ///< [D, W]
  View<const float> initial_state;  ///< [B, W, D]; data is null if zeros come before
  View<T> y;                        ///< [B, L, D]
  View<float> final_state;          ///< [B, W, D]; data is null if it is not wanted

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatArguments = Arguments<float>;         ///< tensors in fp32
using Bf16Arguments = Arguments<__nv_bfloat16>;  ///< u and y in bf16

/// @tparam T as above, of dy and du, too
template <class T>
struct BackwardArguments {
  int B, L, D, W;
  View<const T> u;                  ///< [B, L, D]
  const float* kernel;              ///< [D, W]
  View<const float> initial_state;  ///< [B, W, D]; data is null if zeros come before
  View<const T> dy;                 ///< [B, L, D]
  View<const float> dfinal_state;   ///< [B, W, D]; data is null if it is 0
  View<T> du;                       ///< [B, L, D]
  float* dkernel;                   ///< [D, W]
  View<float> dinitial_state;       ///< [B, W, D]; data is null if it is unused

  static BackwardArguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};
using FloatBackwardArguments = BackwardArguments<float>;         ///< tensors in fp32
using Bf16BackwardArguments = BackwardArguments<__nv_bfloat16>;  ///< u, dy and du in bf16

void direct(const FloatArguments&);                   ///< CPU, double: what the stages are checked against
void direct_backward(const FloatBackwardArguments&);  ///< the same

template <class T>
void dispatch(const Arguments<T>&);  ///< GPU: a thread holds the last W inputs of its channels in registers
template <class T>
void dispatch_backward(const BackwardArguments<T>&);  ///< GPU: the same towards both ends

// Why a stage cannot run the problem, as a sentence, empty if it can; and bytes of memory beside inputs and outputs.
template <class T>
std::string dispatch_unsupported(const Arguments<T>&);
template <class T>
std::string dispatch_backward_unsupported(const BackwardArguments<T>&);
template <class T>
std::int64_t dispatch_backward_memory(const BackwardArguments<T>&);

}  // namespace tutorial::short_convolution
