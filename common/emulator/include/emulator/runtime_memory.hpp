#pragma once
/// @file
/// Memory of the devices. It is host memory, but the calls treat it as if it were not: a copy or memset that leaves its
/// allocation is refused. Sizes are in bytes.
///
/// Functions return cudaSuccess or an error, which cudaGetLastError() gives once more: cudaErrorInvalidValue for a null
/// pointer to a result and for what is refused, cudaErrorMemoryAllocation where the memory is not there, and the errors
/// of captures.

#include <cstddef>

#include "emulator/runtime_error.hpp"
#include "emulator/runtime_stream.hpp"

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};

/// Memory of the current device, aligned to 256 bytes and filled with 0xFF, a NaN in every floating type; null for 0
/// bytes. cudaErrorStreamCaptureUnsupported during a capture, which is lost then, as for cudaFree().
cudaError_t cudaMalloc(void** pointer, std::size_t bytes);
/// The pointer must come from cudaMalloc() or be null.
cudaError_t cudaFree(void* pointer);
/// Host memory that a GPU could copy from without a detour; here it is ordinary memory.
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes);
/// The pointer must come from cudaMallocHost() or be null, which is not checked.
cudaError_t cudaFreeHost(void* pointer);

// The direction must fit where the memory lies, on whichever device, also where a GPU would not mind; cudaMemcpyDefault
// takes any. cudaErrorInvalidMemcpyDirection for a number that is none. Those with a stream are recorded if it is being
// captured.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* to, int value, std::size_t bytes);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream = nullptr);

/// Bytes left and bytes in all of the current device. The environment variable EMULATOR_MEMORY sets the latter, so that
/// a test can run out of memory; otherwise it is the machine's.
cudaError_t cudaMemGetInfo(std::size_t* available, std::size_t* total);

// The same for pointers of any type.
template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
template <class T>
cudaError_t cudaMallocHost(T** pointer, std::size_t bytes) {
  return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes);
}

// NOLINTEND(readability-identifier-naming)
