#pragma once
/// @file
/// The operator `convolution` and one declaration per stage. Plain views and sizes only: .cu files include it.
///
///     y_t = sum_{j<=t} kernel_{t-j} u_j
///
/// for each of D channels; positions t and j count from 0. If kernel_j = r^j, this is the operator `scan` with x = u,
/// y_0 = 0 and the same gate r at every step. Views of CPU stages point into host memory, views of GPU stages into
/// device memory. GPU stages only start their kernels, on current_stream(); they throw CudaError if the runtime
/// refuses. So do the functions *_unsupported, *_note and *_memory if they query the device. All sizes are 1 or more. A
/// stage does not check what it supports: if *_unsupported is not empty, the behaviour of the stage is undefined.
/// bind() throws std::logic_error if the call lacks a size or has a tensor of another type.

#include <cstdint>
#include <string>

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

void direct(const Arguments&);    ///< CPU, double: what every stage is checked against
void fft(const Arguments&);       ///< CPU, double: a product of spectra
void by_scan(const Arguments&);   ///< GPU: the operator `scan`, for kernel_j = r^j
void by_cufft(const Arguments&);  ///< GPU: `fft` through cuFFT; CUDA builds only

// Why a stage cannot run the problem, as a sentence; empty if it can.
std::string direct_unsupported(const Arguments&);
/// Why `scan` does not support the problem; empty if it does.
std::string by_scan_unsupported(
    const Arguments&);  ///< copies the kernel to the host, where there is one, and looks at it
/// Why the stage does not support the problem, or that the build has no cuFFT; empty if it runs.
std::string by_cufft_unsupported(const Arguments&);

// Bytes of memory that a stage needs beside its inputs and outputs.
std::int64_t fft_memory(const Arguments&);
std::int64_t by_scan_memory(const Arguments&);
std::int64_t by_cufft_memory(const Arguments&);

/// Bytes that its kernels read from global memory or write to it, without the words that tiles publish for each other.
std::int64_t by_scan_bytes_moved(const Arguments&);

/// What scan's dispatch picks, as text for the report.
std::string by_scan_note(const Arguments&);

/// Positions of the sequences that are transformed: a power of two, at least 2 L, so that the circular convolution of
/// their spectra is the plain one.
std::int64_t padded_length(std::int64_t L);

}  // namespace tutorial::convolution
