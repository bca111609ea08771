#pragma once
/// @file
/// The operator `convolution` and one declaration per stage. Plain views and sizes only: .cu files include it.
///
///     y_t = sum_{j<=t} kernel_{t-j} u_j
///
/// for each of D channels; positions t and j count from 0. If kernel_j = r^j, this is the operator `scan` with x = u,
/// y_0 = 0 and the same gate r at every step. Views of CPU stages point into host memory, views of GPU stages into
/// device memory. GPU stages only start their kernels, on current_stream(); they throw CudaError if the runtime
/// refuses. All sizes are 1 or more. A stage does not check what it supports: convolution/requirements.hpp tells.
/// bind() throws std::logic_error if the call lacks a size or has a tensor of another type.

#include <cstdint>

#include "common/view.hpp"

namespace tutorial::convolution {

/// The arguments of a stage.
struct Arguments {
  int B, L, D;
  View<const float> u;  ///< [B, L, D]
  const float* kernel;  ///< [L]
  View<float> y;        ///< [B, L, D]

  static Arguments bind(const Call& call);  ///< sizes and tensors of a call of the runner
};

void direct(const Arguments&);   ///< CPU, double: what every stage is checked against
void fft(const Arguments&);      ///< CPU, double: a product of spectra
void by_scan(const Arguments&);  ///< GPU: the operator `scan`, for kernel_j = r^j

/// Positions of the sequences that are transformed: a power of two, at least 2 L, so that the circular convolution of
/// their spectra is the plain one.
std::int64_t padded_length(std::int64_t L);
/// Threads of `fft`, each of which has memory of its own.
int fft_threads(const Arguments&);

}  // namespace tutorial::convolution
