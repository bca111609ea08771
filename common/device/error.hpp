#pragma once
/// @file
/// Errors of the CUDA runtime as exceptions.

#include <cuda_runtime.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace tutorial {

/// A call of the CUDA runtime or a kernel launch failed. The message is one line: what failed, why, and where in our
/// source. On the emulator the report of a kernel that went wrong (such as a barrier that never opens) follows it.
class CudaError : public std::runtime_error {
 public:
  /// The runtime's code, the call in words, and the line of the call.
  CudaError(cudaError_t code, const std::string& what_failed, std::source_location where);

  /// CUDA's own number for it: cudaErrorMemoryAllocation, for example, where the device has too little memory.
  cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

/// Throws CudaError unless `status` is cudaSuccess. Every call of the runtime goes through it:
/// `check(cudaStreamSynchronize(stream));`. Errors of kernels that run asynchronously surface in a later call that
/// waits for them, as always in CUDA.
void check(cudaError_t status, std::source_location where = std::source_location::current());

}  // namespace tutorial
