#pragma once
/// @file
/// Work of the host in a stream, in the place of a library's kernels.

#include <cuda_runtime.h>

#include <functional>

namespace emulator {

/// Calls `work` after what the stream has before, and before what comes after it; on a stream that is being captured
/// the call is recorded instead. Device memory is host memory here, so it may read and write it. Returns cudaSuccess,
/// or the error of a capture that does not allow it (cudaErrorStreamCaptureInvalidated,
/// cudaErrorStreamCaptureImplicit). What `work` throws is passed on.
cudaError_t host_call(cudaStream_t stream, std::function<void()> work);

}  // namespace emulator
