#pragma once
/// @file
/// The transforms of cuFFT.

#include <cstdint>
#include <string>

#include "06_scan/convolution.hpp"

namespace tutorial::convolution {

/// GPU: `fft` through cuFFT; CUDA builds only. @throws CudaError if the runtime refuses
void by_cufft(const Arguments&);
/// Why it does not support the problem, or that the build has no cuFFT; empty if it runs.
std::string by_cufft_unsupported(const Arguments&);
/// Bytes of memory that it needs beside its inputs and outputs.
std::int64_t by_cufft_memory(const Arguments&);

}  // namespace tutorial::convolution
