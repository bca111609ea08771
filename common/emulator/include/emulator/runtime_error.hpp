#pragma once
/// @file
/// The error codes of the CUDA runtime, with CUDA's numbers.

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's

enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidMemcpyDirection = 21,
  cudaErrorInvalidDevice = 101,
  cudaErrorPeerAccessUnsupported = 217,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorIllegalState = 401,
  cudaErrorNotReady = 600,
  cudaErrorPeerAccessAlreadyEnabled = 704,
  cudaErrorPeerAccessNotEnabled = 705,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorInvalidClusterSize = 912,
};
using cudaError_t = cudaError;

/// The last error of this host thread, which is then forgotten. No error of the emulator outlives this call; on a GPU
/// cudaErrorLaunchFailure stays until the process ends.
cudaError_t cudaGetLastError();
/// The last error of this host thread, which is kept.
cudaError_t cudaPeekAtLastError();
/// The enumerator's name.
const char* cudaGetErrorName(cudaError_t error);
/// What went wrong, in words.
const char* cudaGetErrorString(cudaError_t error);

// NOLINTEND(readability-identifier-naming)
